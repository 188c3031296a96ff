//! The scripts of locks.

use std::sync::LazyLock;

use crate::script::Script;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("../scripts/lock/", $file))));
    };
}

script!(ACQUIRE, "acquire.lua");
script!(CLAIM, "claim.lua");
script!(RENEW, "renew.lua");
script!(REPAIR, "repair.lua");
script!(RELEASE, "release.lua");
script!(WAIT, "wait.lua");
script!(COUNT, "count.lua");
