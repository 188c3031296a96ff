//! The transfer example prints what its text promises.

use std::process::Command;

#[test]
fn a_transfer_happens_once_a_refusal_is_an_answer_and_a_broken_database_frees_the_key() {
    let output = Command::new(env!("CARGO_BIN_EXE_transfer")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "t-1 100: DatabaseDown",
        "t-1 100: done, 50 left",
        "t-1 100: done, 50 left",
        "t-2 100: NotEnoughMoney",
        "t-2 100: NotEnoughMoney",
        "t-1 999: the key was used before with another payload; use a new key for a new call",
        "balance: 50",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
