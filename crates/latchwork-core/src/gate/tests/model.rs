//! Two gates in front of one lock server, driven at random: answers are late and out of order, sessions end, people
//! leave at any moment.

mod rest;
mod side;
mod world;

use std::time::Duration;

use world::World;

use crate::{gate::HandOverBound, testing::Seed};

/// What the runs differ in beside their seed.
fn bounds(seed: u64) -> HandOverBound {
    match seed % 4 {
        0 => HandOverBound::default(),
        1 => HandOverBound::new(3, Duration::MAX),
        2 => HandOverBound::new(0, Duration::ZERO),
        _ => HandOverBound::new(u32::MAX, Duration::from_millis(4)),
    }
}

fn run(seed: u64, steps: usize, losses: bool, unordered: bool) {
    let mut world = World::new(Seed::new(seed), bounds(seed), losses, unordered);
    for step in 0..steps {
        world.step();
        world.check();
        if step % 250 == 249 {
            world.come_to_rest();
            world.check();
            world.nobody_waits_for_nothing();
            world.what_is_free_is_granted();
        }
    }
    world.everybody_goes_home();
}

#[test]
fn two_gates_exclude_each_other_and_forget_nobody() {
    for seed in Seed::row(14, 3) {
        run(seed, 3_000, false, seed % 2 == 1);
    }
}

#[test]
fn two_gates_exclude_each_other_and_forget_nobody_while_sessions_end() {
    for seed in Seed::row(14, 3) {
        run(seed, 3_000, true, seed % 2 == 1);
    }
}
