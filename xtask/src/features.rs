//! Each feature alone: what a user may switch on by itself must build by itself.

use crate::cmd::Cmd;
use crate::workspace::{Choice, Package};

/// A check of each published package without features, and with each of its features alone.
pub(crate) fn checks(choice: &Choice<'_>) -> Vec<Cmd> {
    let published = choice.packages.iter().filter(|package| package.published());
    published.flat_map(|package| checks_of(package)).collect()
}

fn checks_of(package: &Package) -> Vec<Cmd> {
    // Quiet: the clippy step has shown the dependencies already, so only warnings and errors are news.
    let bare = Cmd::cargo("check --quiet --no-default-features --package").args([&package.name]);
    let alone = |feature: &String| bare.clone().args(["--features", feature]);
    // An empty set, as `default = []` often is, would be the bare check once more.
    let features = package.features.iter().filter(|(name, parts)| *name != "default" || !parts.is_empty());
    std::iter::once(bare.clone()).chain(features.map(|(name, _)| alone(name))).collect()
}

#[cfg(test)]
mod tests {
    use crate::workspace::tests::sample;

    use super::*;

    #[test]
    fn every_feature_of_every_published_package_is_checked_alone() {
        let workspace = sample();
        let choice = workspace.choose::<&str>(&[]).unwrap();
        let shown: Vec<String> = checks(&choice).iter().map(ToString::to_string).collect();
        let check = "cargo check --quiet --no-default-features --package";
        let expected = [
            "onlyonce-core",
            "onlyonce",
            "onlyonce --features default",
            "onlyonce --features http",
            "onlyonce --features redis",
            "onlyonce-store-redis",
            "onlyonce-store-redis --features tls",
        ];
        assert_eq!(shown, expected.map(|rest| format!("{check} {rest}")));
    }
}
