//! Steps by which the clock of the system is set forward.

use super::super::*;

/// Reads the clocks at these milliseconds, and returns the reported steps in milliseconds.
fn steps(readings: &[(u64, u64)]) -> Vec<u64> {
    let reading = |&(steady, unix)| Reading {
        steady: Duration::from_millis(steady),
        unix: Duration::from_millis(unix),
    };
    let mut steps = ForwardSteps::new(reading(&readings[0]));
    let steps = readings.iter().map(|it| steps.read(reading(it)).unwrap_or_default());
    steps.map(|step| u64::try_from(step.as_millis()).unwrap()).collect()
}

#[test]
fn time_that_passes_on_both_clocks_is_no_step() {
    assert_eq!(steps(&[(0, 5_000), (10, 5_010), (90_000, 95_000)]), [0, 0, 0]);
}

#[test]
fn a_step_forward_is_reported_once_without_the_time_that_passed() {
    assert_eq!(steps(&[(0, 5_000), (200, 605_200), (400, 605_400)]), [0, 600_000, 0]);
}

/// Slews and unequal readings do not add up while they are undone, and a series of small steps
/// is reported once it amounts to a second.
#[test]
fn small_steps_count_once_they_add_up() {
    assert_eq!(steps(&[(0, 5_000), (200, 6_199), (400, 5_400)]), [0, 0, 0]);
    assert_eq!(steps(&[(0, 5_000), (200, 5_700), (400, 6_400), (600, 6_600)]), [0, 0, 1_000, 0]);
}

#[test]
fn a_clock_set_back_is_no_step_and_what_is_set_forward_later_counts() {
    let readings = [(0, 900_000), (200, 200), (400, 400), (600, 900_600)];
    assert_eq!(steps(&readings), [0, 0, 0, 900_000]);
}

#[test]
fn a_clock_at_its_end_is_no_panic() {
    let mut steps = ForwardSteps::new(Reading::default());
    let last = Reading { steady: Duration::ZERO, unix: Duration::MAX };
    assert_eq!(steps.read(last), Some(Duration::MAX));
    assert_eq!(steps.read(Reading { steady: Duration::MAX, unix: Duration::MAX }), None);
}
