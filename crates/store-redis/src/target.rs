//! Where the records are, read from a URL.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::open_error::OpenError;

/// One server, the primary that Sentinels watch, or some nodes of a Cluster.
pub(crate) enum Target {
    Single(Box<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        /// All but its address.
        primary: Box<ConnectionInfo>,
    },
    Cluster(Vec<ConnectionInfo>),
}

impl Target {
    /// Never repeats the URL in an error: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        let Some((scheme, rest)) = url.split_once("://") else { return Self::parse_list(url) };
        match scheme {
            "redis" | "rediss" => Self::parse_single(scheme, rest, &["protocol"]),
            "redis+unix" | "unix" => Self::parse_single(scheme, rest, &["db", "user", "pass", "protocol"]),
            "redis-cluster" => Self::parse_cluster("redis", rest),
            "rediss-cluster" => Self::parse_cluster("rediss", rest),
            "redis-sentinel" => Self::parse_sentinel("redis", rest),
            "rediss-sentinel" => Self::parse_sentinel("rediss", rest),
            _ => Err(OpenError::url("its scheme is another one")),
        }
    }

    /// What the driver does not know it passes over in silence: a password that is not sent, for instance.
    fn parse_single(scheme: &str, rest: &str, known: &[&str]) -> Result<Self, OpenError> {
        let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
        let mut names =
            parameters.split('&').filter(|part| !part.is_empty()).map(|part| part.split('=').next());
        if names.any(|name| name.is_none_or(|name| !known.contains(&name))) {
            return Err(OpenError::url(
                "it has an unknown parameter: there are protocol, and of a socket's file db, user and pass; user and password of a \
                 server stand before its host",
            ));
        }
        Ok(Self::Single(Box::new(info(scheme, rest)?)))
    }

    /// `[user:password@]host:port,host:port`, or with `;` between the nodes
    fn parse_cluster(scheme: &str, rest: &str) -> Result<Self, OpenError> {
        let (nodes, path) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
        if !matches!(path, "" | "0") {
            return Err(OpenError::url("a Cluster has database 0 only, and the URL takes no parameters"));
        }
        let (login, nodes) = login(nodes);
        Ok(Self::Cluster(infos(scheme, &login, nodes)?))
    }

    /// `[user:password@]host:port,host:port/name[/database][?sentinel_user=…&sentinel_password=…]`
    fn parse_sentinel(scheme: &str, rest: &str) -> Result<Self, OpenError> {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (nodes, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, database) = path.split_once('/').unwrap_or((path, ""));
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(named) {
            return Err(OpenError::url(
                "after the Sentinels comes the name of the primary that they watch, as in /mymaster",
            ));
        }
        let (login, nodes) = login(nodes);
        let primary = info(scheme, &format!("{login}primary:1/{database}"))?;
        let mut word = ["", ""];
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sentinel_user", user)) => word[0] = user,
                Some(("sentinel_password", password)) => word[1] = password,
                _ => return Err(OpenError::url("its parameters may be sentinel_user and sentinel_password")),
            }
        }
        let to_sentinels =
            if word[1].is_empty() { String::new() } else { format!("{}:{}@", word[0], word[1]) };
        let sentinels = infos(scheme, &to_sentinels, nodes)?;
        Ok(Self::Sentinel { sentinels, name: name.to_owned(), primary: Box::new(primary) })
    }

    /// `host:port;host:port`
    fn parse_list(list: &str) -> Result<Self, OpenError> {
        if !list.contains(';') {
            return Err(OpenError::url("it has no scheme"));
        }
        let nodes = list.split(';').map(str::trim).filter(|node| !node.is_empty());
        Ok(Self::Cluster(nodes.map(|node| info("redis", named(node)?)).collect::<Result<_, _>>()?))
    }
}

/// `user:password@` or nothing, and the nodes.
fn login(nodes: &str) -> (String, &str) {
    nodes.rsplit_once('@').map_or((String::new(), nodes), |(login, nodes)| (format!("{login}@"), nodes))
}

fn infos(scheme: &str, login: &str, nodes: &str) -> Result<Vec<ConnectionInfo>, OpenError> {
    nodes.split([',', ';']).map(|node| info(scheme, &format!("{login}{}", named(node)?))).collect()
}

/// The node, if it has a host and a port: without a port, typing errors would be taken for hosts.
fn named(node: &str) -> Result<&str, OpenError> {
    let named = node.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    named
        .map(|_| node)
        .ok_or_else(|| OpenError::url("every node of a Cluster and every Sentinel is named as host:port"))
}

fn info(scheme: &str, rest: &str) -> Result<ConnectionInfo, OpenError> {
    #[cfg(not(feature = "tls"))]
    if scheme == "rediss" {
        return Err(OpenError::NotSupported {
            what: "TLS; build with the feature `tls` (`redis-tls` of onlyonce)",
        });
    }
    #[cfg(feature = "tls")]
    if scheme == "rediss" {
        // An error means that the program has chosen a provider already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let url = format!("{scheme}://{rest}");
    // The driver's error says less than this, and could say too much.
    url.into_connection_info()
        .map_err(|_| OpenError::url("its host, port, database or parameters can't be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(url: &str) -> Vec<String> {
        match Target::parse(url).unwrap() {
            Target::Single(info) => vec![info.addr().to_string()],
            Target::Cluster(infos) | Target::Sentinel { sentinels: infos, .. } => {
                infos.iter().map(|info| info.addr().to_string()).collect()
            }
        }
    }

    #[test]
    fn each_form_is_understood() {
        assert_eq!(nodes("redis://h:7001/3"), ["h:7001"]);
        assert_eq!(nodes("redis-cluster://h1:1,h2:2"), ["h1:1", "h2:2"]);
        assert_eq!(nodes("redis-cluster://u:p@h1:1;h2:2"), ["h1:1", "h2:2"]);
        assert_eq!(nodes("h1:1;h2:2"), ["h1:1", "h2:2"]);
        assert_eq!(nodes("h1:1; h2:2;"), ["h1:1", "h2:2"]);
        let Ok(Target::Cluster(infos)) = Target::parse("redis-cluster://ann:s%40fe@h1:1,h2:2/") else {
            panic!()
        };
        for info in infos {
            let settings = info.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("ann"), Some("s@fe")));
        }
    }

    #[test]
    fn what_is_not_understood_is_answered_with_the_schemes_and_without_the_password() {
        let wrong = [
            "http://u:hunter2@h",
            "redis-cluster://u:hunter2@h",
            "h:1",
            "h;h2",
            "",
            "redis-cluster://u:hunter2@h:1/5",
            "redis://u:hunter2@h:port",
            "redis://h:1?password=hunter2",
            "redis://h:1/0?protocol=resp3&hunter2",
            "unix:///run/redis.sock?password=hunter2",
            "redis-cluster://u:hunter2@h:1,",
            "redis://u:hunter2@h:1/x",
            "redis-sentinel://u:hunter2@h:1",
            "redis-sentinel://u:hunter2@h/name",
            "redis-sentinel://u:hunter2@h:1/name/x",
            "redis-sentinel://u:hunter2@h:1/name?timeout=1",
        ];
        for url in wrong {
            let error = Target::parse(url).err().unwrap_or_else(|| panic!("{url} was understood"));
            let said = format!("{error} {error:?}");
            assert!(said.contains("redis://") && said.contains("redis-cluster://"), "{url}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn sentinels_and_their_primary_have_logins_of_their_own() {
        let url = "redis-sentinel://ann:s%40fe@h1:1,h2:2/main/3?sentinel_user=sam&sentinel_password=w%26tch";
        assert_eq!(nodes(url), ["h1:1", "h2:2"]);
        let Ok(Target::Sentinel { sentinels, name, primary }) = Target::parse(url) else { panic!() };
        assert_eq!(name, "main");
        let settings = primary.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("ann"), Some("s@fe"), 3));
        for sentinel in sentinels {
            let settings = sentinel.redis_settings();
            assert_eq!(
                (settings.username(), settings.password(), settings.db()),
                (Some("sam"), Some("w&tch"), 0)
            );
        }
    }
}
