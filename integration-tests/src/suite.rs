//! The lists of promises.

/// Writes one test for each promise.
#[doc(hidden)]
#[macro_export]
macro_rules! tests_of_promises {
    ($world:ty: $($module:ident { $($promise:ident),* $(,)? })*) => { $($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $promise() {
            $crate::check::<$world>($crate::promises::$module::$promise).await;
        }
    )*)* };
}

/// Writes a test for each promise that sessions and transactions keep alike.
#[macro_export]
macro_rules! promises_of_every_scope {
    ($world:ty) => {
        $crate::tests_of_promises! { $world:
            exclusion {
                second_session_waits_until_release,
                a_try_on_a_held_key_is_answered_with_nothing,
                shared_holders_keep_an_exclusive_one_out_and_not_each_other,
                an_exclusive_holder_keeps_shared_ones_out,
                bigint_and_pair_keys_are_disjoint,
                no_two_hold_a_key_under_load,
            }
            cancellation {
                dropped_at_any_poll_on_a_free_key,
                dropped_at_any_moment_on_a_free_key,
                dropped_at_any_poll_on_a_key_that_others_hold,
                a_dropped_wait_stands_in_nobodys_way,
                dropped_while_the_key_changes_hands,
                a_thousand_random_drops_leave_nothing,
            }
            limits {
                a_limit_of_zero_is_a_try,
                tiny_limits_run_out,
                a_limit_runs_out_in_time,
                a_soak_of_short_limits_leaves_nothing,
            }
            loss { others_get_the_key_of_a_session_that_ends }
        }
    };
}

/// Writes a test for each promise that processes with sessions of their own keep.
#[macro_export]
macro_rules! promises_of_sessions {
    ($world:ty) => {
        $crate::tests_of_promises! { $world:
            tasks {
                two_tasks_of_one_process_exclude_each_other,
                names_are_taken_to_the_letter,
                no_two_hold_a_key_over_tasks_and_processes,
                dropped_at_any_moment_behind_a_local_holder,
                a_dropped_wait_leaves_those_of_other_tasks,
                a_dropped_release_has_released,
                dropped_at_any_poll_for_a_slot,
                random_drops_by_many_tasks_leave_nothing,
            }
            limits { a_limit_covers_the_local_queue_and_the_server }
            loss {
                the_holder_is_told_and_its_work_is_cancelled,
                an_old_guard_does_nothing_to_a_new_hold,
                local_waiters_outlive_the_loss,
                a_hold_that_was_waited_for_is_lost_alike,
                a_permit_is_lost_and_its_slot_is_free_again,
            }
            release {
                a_release_is_reported_and_final,
                a_release_ends_one_hold_only,
                a_guard_may_be_dropped_without_a_runtime,
                a_panic_releases,
                closing_waits_for_holders_and_leaves_nothing,
            }
        }
    };
}

/// Writes a test for each promise about who is served when, and about many at once; what stands between a process and
/// its server makes no difference to them.
#[macro_export]
macro_rules! promises_of_turns {
    ($world:ty) => {
        $crate::tests_of_promises! { $world:
            fairness {
                local_waiters_are_served_in_turn,
                a_shared_one_does_not_overtake,
                another_process_gets_its_turn,
                a_polling_process_gets_its_turn,
                two_busy_processes_take_turns,
                shared_joins_let_an_exclusive_one_in,
                slots_get_round,
            }
            slots {
                never_more_than_so_many_and_every_slot_is_used,
                a_full_pool_refuses_and_a_released_slot_is_free,
                waiters_for_a_slot_are_served,
                other_limits_are_seen_and_the_largest_holds,
            }
            scale {
                a_thousand_waiters_of_one_process_are_served,
                ten_thousand_keys_are_held_and_released,
            }
        }
    };
}

/// Writes a test for each promise that is seen in what the server was asked.
#[macro_export]
macro_rules! promises_of_attempts {
    ($world:ty) => {
        $crate::tests_of_promises! { $world: limits { zero_asks_the_server_exactly_once } }
    };
}

/// Writes a test for each promise that takes a server which may be stopped.
#[macro_export]
macro_rules! promises_of_outages {
    ($world:ty) => {
        $crate::tests_of_promises! { $world:
            outages {
                a_dead_server_is_not_reported_as_busy,
                a_wait_outlives_a_restart,
            }
        }
    };
}
