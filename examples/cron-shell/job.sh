#!/bin/sh
# What the lines of the crontab run. It stands in for work, and says when it begins, and when it has ended.
set -eu
host="${HOST:-$(hostname)}"
echo "$LATCHWORK_NAME begins on $host"
sleep 1
echo "$LATCHWORK_NAME ends on $host"
