//! The attribute example prints what its text promises.

use std::process::Command;

#[test]
fn an_order_is_shipped_once_whatever_the_caller_repeats() {
    let output = Command::new(env!("CARGO_BIN_EXE_attribute")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "shoes 42: it is jammed",
        "shoes 42: parcel 1 with shoe",
        "shoes 42: parcel 1 with shoe",
        "shoes 42: the key was used before with another payload; use a new key for a new call",
        "books 42: parcel 2 with book",
        "books 43: only 5 books left",
        "books 43: only 5 books left",
        "shipped: [42, 42]",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}
