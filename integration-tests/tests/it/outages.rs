//! No server, no way in, no answer: an outage is told as one, in bounded time, and what ends it is noticed.

mod deaths;
mod logins;
mod silence;
