//! The lists of scenarios.

/// Writes one test for each scenario.
#[doc(hidden)]
#[macro_export]
macro_rules! tests_of_scenarios {
    ($on:expr; $($module:ident { $($scenario:ident),* $(,)? })*) => { $(
        mod $module { $(
            #[test]
            fn $scenario() {
                $crate::$module::$scenario($on);
            }
        )* }
    )* };
}

/// Writes a test for each scenario of one program.
#[macro_export]
macro_rules! scenarios_of_one {
    ($program:expr) => {
        $crate::tests_of_scenarios! { &$program;
            usage {
                help_names_every_option_and_route,
                a_mistake_on_the_command_line_is_exit_status_2,
                a_url_that_does_not_parse_is_exit_status_2_and_its_password_is_not_shown,
                a_database_that_does_not_answer_is_exit_status_1,
                a_port_that_is_taken_is_exit_status_1_and_named,
                it_listens_where_it_is_told_to_on_the_database_of_the_environment,
            }
            ends {
                nothing_is_left_of_its_cluster_when_it_returns_from_a_signal,
                nothing_is_left_of_its_cluster_soon_after_kill_9,
                a_further_instance_shares_the_throw_away_cluster_of_the_first,
                a_request_that_runs_is_finished_and_nothing_is_left_on_the_server,
                requests_that_run_are_finished_whoever_made_their_connections,
                a_request_that_takes_too_long_is_cut_off_and_undone,
                it_ends_at_once_when_the_database_never_answers,
            }
        }
    };
}

/// Writes a test for each scenario of two instances.
#[macro_export]
macro_rules! scenarios_of_two {
    ($one:expr, $other:expr) => {
        $crate::tests_of_scenarios! { $crate::Pair::start(&$one, &$other);
            charges {
                forty_charges_at_once_on_two_instances_add_up,
                an_order_that_is_being_charged_is_refused_to_others_and_other_orders_are_not,
                a_charge_whose_client_leaves_is_undone,
                what_is_no_charge_changes_nothing,
                more_charges_than_there_are_connections_do_not_keep_others_from_asking,
            }
            ai {
                five_at_once_over_both_instances_and_never_more,
                a_crowd_is_let_in_bit_by_bit,
                the_answer_comes_whole_or_word_by_word,
                the_calls_of_a_killed_instance_leave_their_slots_and_are_counted_no_more,
                calls_whose_slot_is_lost_with_the_database_are_cut_off_and_counted_no_more,
            }
            payments {
                a_payment_that_is_sent_again_is_answered_the_same_by_either_instance,
                one_payment_that_is_sent_by_twenty_at_once_is_made_once,
                a_payment_that_fails_leaves_no_row_and_its_key_can_be_used_again,
                a_key_is_required_and_belongs_to_its_payment_and_customer,
            }
            search {
                twenty_in_a_burst_and_ten_a_second_over_both_instances,
                it_finds_orders_by_a_part_of_their_id,
            }
            outage { while_the_database_is_away_all_routes_say_so_and_afterwards_all_is_well }
            alike {
                both_instances_answer_with_the_same_status_headers_and_body,
                both_instances_refuse_what_they_do_not_understand_with_the_same_status,
            }
        }
    };
}
