//! The packages of this workspace, as cargo describes them, and a choice among them by short names.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::cmd::Cmd;
use crate::failure::Failure;

#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    /// The registries it may go to: `None` is any, an empty list is `publish = false`.
    publish: Option<Vec<String>>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    doctest: bool,
}

impl Package {
    pub(crate) fn published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    pub(crate) fn has_doc_tests(&self) -> bool {
        self.targets.iter().any(|target| target.doctest)
    }

    /// What people call it: `redis` is `onlyonce-store-redis`.
    fn short(&self) -> &str {
        let name = self.name.strip_prefix("onlyonce-").unwrap_or(&self.name);
        name.strip_prefix("store-").unwrap_or(name)
    }

    fn is_called(&self, name: &str) -> bool {
        let bare = name.strip_prefix("onlyonce-").unwrap_or(name);
        self.name == name || self.short() == bare.strip_prefix("store-").unwrap_or(bare)
    }
}

impl Workspace {
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::parse(&Cmd::cargo("metadata --no-deps --format-version 1").output()?)
    }

    pub(crate) fn parse(metadata: &str) -> Result<Self, Failure> {
        serde_json::from_str(metadata)
            .map_err(|error| Failure::failed(format!("cargo metadata is not as expected: {error}")))
    }

    pub(crate) fn has(&self, package: &str) -> bool {
        self.packages.iter().any(|known| known.name == package)
    }

    /// The packages of these names, or all of them if there are no names.
    pub(crate) fn choose<S: AsRef<str>>(&self, names: &[S]) -> Result<Choice<'_>, Failure> {
        if names.is_empty() {
            return Ok(Choice { packages: self.packages.iter().collect(), whole: true });
        }
        let mut packages = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let package = self.packages.iter().find(|package| package.is_called(name));
            let package = package.ok_or_else(|| self.unknown(name))?;
            if !packages.iter().any(|known: &&Package| known.name == package.name) {
                packages.push(package);
            }
        }
        Ok(Choice { packages, whole: false })
    }

    fn unknown(&self, name: &str) -> Failure {
        let mut known: Vec<&str> = self.packages.iter().map(Package::short).collect();
        known.sort_unstable();
        Failure::Usage(format!("there is no package `{name}`; there are: {}", known.join(", ")))
    }
}

/// Some packages, or the whole workspace.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) packages: Vec<&'a Package>,
    whole: bool,
}

impl<'a> Choice<'a> {
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Those of the chosen packages that pass; the whole workspace stays whole, as cargo skips there by itself.
    pub(crate) fn only(&self, pass: impl Fn(&Package) -> bool) -> Choice<'a> {
        let packages = self.packages.iter().copied().filter(|package| pass(package)).collect();
        Choice { packages, whole: self.whole }
    }

    /// `--workspace`, or a `--package` for each.
    pub(crate) fn flags(&self) -> Vec<String> {
        self.flags_or("--workspace")
    }

    /// As [`flags`](Self::flags), for commands with another word for the whole workspace.
    pub(crate) fn flags_or(&self, whole: &str) -> Vec<String> {
        if self.whole {
            return vec![whole.to_owned()];
        }
        self.packages.iter().flat_map(|package| ["--package".to_owned(), package.name.clone()]).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Workspace {
        Workspace::parse(include_str!("../fixtures/metadata.json")).unwrap()
    }

    #[test]
    fn packages_go_by_their_short_and_their_full_names() {
        let workspace = sample();
        let choice =
            workspace.choose(&["core", "onlyonce-core", "redis", "store-redis", "onlyonce"]).unwrap();
        let names: Vec<_> = choice.packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(names, ["onlyonce-core", "onlyonce-store-redis", "onlyonce"]);
        assert_eq!(choice.flags()[..2], ["--package", "onlyonce-core"]);
    }

    #[test]
    fn no_names_mean_the_whole_workspace() {
        assert_eq!(sample().choose::<&str>(&[]).unwrap().flags_or("--all"), ["--all"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let Err(failure) = sample().choose(&["cor"]) else { panic!("it was found") };
        let known = "there is no package `cor`; there are: bench, core, onlyonce, redis";
        assert_eq!(failure, Failure::Usage(known.to_owned()));
    }

    #[test]
    fn publishing_and_doc_tests_are_read_from_the_metadata() {
        let workspace = sample();
        let bench = workspace.packages.iter().find(|package| package.name == "onlyonce-bench").unwrap();
        let core = workspace.packages.iter().find(|package| package.name == "onlyonce-core").unwrap();
        assert!(!bench.published() && !bench.has_doc_tests());
        assert!(core.published() && core.has_doc_tests());
    }
}
