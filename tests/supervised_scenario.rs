//! The plugin of `examples/supervised_scenario.rs`, tested by the transcript of its scenario.

#[path = "../examples/supervised_scenario/plugin.rs"]
mod plugin;
#[path = "../examples/supervised_scenario/scenario.rs"]
mod scenario;

#[test]
fn a_summary_of_a_replaced_application_comes_too_late() {
    let transcript = scenario::replaced_while_the_provider_works();
    assert_eq!((transcript.verdict().applied, transcript.verdict().dropped), (1, 1));
    insta::assert_snapshot!(transcript);
}
