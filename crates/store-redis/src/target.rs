//! Where the records are, read from a URL.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::open_error::OpenError;

/// One server, or some nodes of a Cluster.
pub(crate) enum Target {
    Single(Box<ConnectionInfo>),
    Cluster(Vec<ConnectionInfo>),
}

impl Target {
    /// Never repeats the URL in an error: it may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        let Some((scheme, rest)) = url.split_once("://") else { return Self::parse_list(url) };
        match scheme {
            "redis" | "rediss" | "redis+unix" | "unix" => Ok(Self::Single(Box::new(info(scheme, rest)?))),
            "redis-cluster" => Self::parse_cluster("redis", rest),
            "rediss-cluster" => Self::parse_cluster("rediss", rest),
            "redis-sentinel" | "rediss-sentinel" => Err(OpenError::NotSupported {
                what: "Sentinel (redis-sentinel://); name the primary by redis://, or use a Cluster",
            }),
            _ => Err(OpenError::url("its scheme is another one")),
        }
    }

    /// `[user:password@]host:port,host:port`
    fn parse_cluster(scheme: &str, rest: &str) -> Result<Self, OpenError> {
        let (nodes, path) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
        if !matches!(path, "" | "0") {
            return Err(OpenError::url("a Cluster has database 0 only, and the URL takes no parameters"));
        }
        let (user, nodes) = nodes.rsplit_once('@').map_or(("", nodes), |(user, nodes)| (user, nodes));
        let at = if user.is_empty() { "" } else { "@" };
        let infos = nodes.split(',').map(|node| info(scheme, &format!("{user}{at}{}", named(node)?)));
        Ok(Self::Cluster(infos.collect::<Result<_, _>>()?))
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

/// The node, if it has a host and a port: without a port, typing errors would be taken for hosts.
fn named(node: &str) -> Result<&str, OpenError> {
    let named = node.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    named.map(|_| node).ok_or_else(|| OpenError::url("every node of a Cluster is named as host:port"))
}

fn info(scheme: &str, rest: &str) -> Result<ConnectionInfo, OpenError> {
    if scheme == "rediss" {
        if !cfg!(feature = "tls") {
            return Err(OpenError::NotSupported {
                what: "TLS; build with the feature `tls` (`redis-tls` of onlyonce)",
            });
        }
        #[cfg(feature = "tls")]
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
            Target::Cluster(infos) => infos.iter().map(|info| info.addr().to_string()).collect(),
        }
    }

    #[test]
    fn each_form_is_understood() {
        assert_eq!(nodes("redis://h:7001/3"), ["h:7001"]);
        assert_eq!(nodes("redis-cluster://h1:1,h2:2"), ["h1:1", "h2:2"]);
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
            "redis-cluster://u:hunter2@h:1,",
            "redis://u:hunter2@h:1/x",
        ];
        for url in wrong {
            let error = Target::parse(url).err().unwrap_or_else(|| panic!("{url} was understood"));
            let said = format!("{error} {error:?}");
            assert!(said.contains("redis://") && said.contains("redis-cluster://"), "{url}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn sentinel_is_said_to_be_missing() {
        let error = Target::parse("redis-sentinel://u:hunter2@h:1/name").err().unwrap();
        assert!(matches!(error, OpenError::NotSupported { .. }));
        assert!(error.to_string().contains("not supported yet"), "{error}");
    }
}
