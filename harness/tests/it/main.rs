//! The promises of the harness, on real servers.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod majors;
#[cfg(test)]
mod pgbouncer;
#[cfg(test)]
mod process;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod removal;
#[cfg(test)]
mod standby;
