//! Every transition of a pool by itself, and then thousands of random ones against a lock server.

mod asking;
mod desk;
mod handing;
mod loss;
mod model;
mod tries;
