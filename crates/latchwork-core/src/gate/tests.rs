//! Every transition of the gate by itself, and then thousands of random ones against a lock server.

mod bound;
mod desk;
mod fifo;
mod leaving;
mod loss;
mod model;
mod shared;
mod tries;
