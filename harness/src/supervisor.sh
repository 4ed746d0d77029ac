# Ends what a harness process started, once that process is gone.
#
# $1 is the folder to remove, or nothing. Standard input is a pipe whose only writer is the process that is watched: it
# sends `SIGNAL PID` for each process to end and `forget PID` for one that has ended. End of file, for whatever reason,
# is the cue.
trap '' INT QUIT TERM HUP PIPE TSTP TTIN TTOU
folder=$1
watched=

while read -r word pid; do
  if [ "$word" = forget ]; then
    kept=
    for entry in $watched; do
      [ "${entry#*:}" = "$pid" ] || kept="$kept $entry"
    done
    watched=$kept
  else
    watched="$watched $word:$pid"
  fi
done

# A zombie is gone: its parent may be alive and busy with waiting for this script.
alive() {
  kill -0 "$1" 2>/dev/null || return 1
  [ -r /proc/self/stat ] || return 0
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
  case ${stat##*) } in [ZX]*) return 1 ;; esac
}

# Prints the pid and those of its children; backends leave the process group, so a group signal would miss them.
family() {
  printf '%s ' "$1"
  for file in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null <"$file" || continue
    set -- "$1" ${stat##*) }
    [ "$3" = "$1" ] || continue
    file=${file#/proc/}
    printf '%s ' "${file%/stat}"
  done
}

everyone=
for entry in $watched; do
  pid=${entry#*:}
  members=$(family "$pid")
  everyone="$everyone $members"
  kill -s "${entry%%:*}" "$pid" 2>/dev/null
  # A stopped process takes no signal but this one and KILL.
  kill -s CONT $members 2>/dev/null
done

rounds=0
for pid in $everyone; do
  while alive "$pid" && [ "$rounds" -lt 800 ]; do
    rounds=$((rounds + 1))
    sleep 0.01
  done
done
for pid in $everyone; do
  if alive "$pid"; then
    kill -s KILL "$pid" 2>/dev/null
  fi
done

if [ -n "$folder" ]; then
  # A server that was killed leaves its System V segment behind; line 7 of the pid file names it.
  for file in "$folder"/data/postmaster.pid; do
    [ -f "$file" ] || continue
    segment=$(sed -n 7p "$file")
    ipcrm -m "${segment##* }" 2>/dev/null
  done
  rounds=0
  until rm -rf "$folder" 2>/dev/null || [ "$rounds" -ge 100 ]; do
    rounds=$((rounds + 1))
    sleep 0.01
  done
fi
