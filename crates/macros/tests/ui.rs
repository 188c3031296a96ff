//! What the compiler says about a mistake. After a change on purpose: `TRYBUILD=overwrite cargo test -p onlyonce-macros --test ui`.

#[test]
fn a_mistake_is_reported_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
