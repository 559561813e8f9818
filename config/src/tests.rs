use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use torc_access::tls_dir::TlsDir;

use super::*;

fn minimal() -> RawSettings {
    RawSettings {
        data_dir: Some("d".into()),
        ..Default::default()
    }
}

#[test]
fn a_flag_beats_the_file_and_the_file_beats_the_default() {
    let file: RawSettings = toml::from_str("zone = 'b'\nweight = 50").unwrap();
    let flags = RawSettings {
        zone: Some("a".into()),
        ..minimal()
    };
    let settings = flags.or(file).check().unwrap();
    assert_eq!(settings.zone.as_str(), "a");
    assert_eq!(settings.weight.percent(), 50);
    assert_eq!(settings.grpc_addr.port(), 7400);
    assert_eq!(settings.peer_addr, ([127, 0, 0, 1], 7500).into());
}

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    settings: RawSettings,
}

#[test]
fn the_help_tells_the_defaults_that_are_used() {
    use clap::{CommandFactory as _, Parser as _};
    let checked = |flags: &[String]| {
        let program = ["kvd".to_owned(), "--data-dir=d".to_owned()];
        let flags = Flags::try_parse_from(program.iter().chain(flags)).ok()?;
        let settings = flags.settings.check().ok()?;
        let given = Given::default();
        Some(format!("{:?}", Settings { given, ..settings }))
    };
    let used = checked(&[]).unwrap();
    let mut compared = 0;
    for argument in Flags::command().get_arguments() {
        let help = argument.get_help().unwrap().to_string();
        let Some((_, default)) = help.split_once("[default: ") else {
            continue;
        };
        let name = argument.get_long().unwrap();
        let default = default.split(']').next().unwrap();
        // Others are described in words.
        let is_value = default.starts_with(|c: char| c.is_ascii_digit()) || !default.contains(' ');
        if is_value && let Some(told) = checked(&[format!("--{name}={default}")]) {
            assert_eq!(told, used, "--{name}");
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared} settings tell a value");
}

#[test]
fn nodes_have_a_port_of_their_own() {
    let at = |port| Some(([127, 0, 0, 1], port).into());
    let free = RawSettings {
        grpc_addr: at(0),
        ..minimal()
    };
    assert_eq!(free.check().unwrap().peer_addr.port(), 0);
    for everywhere in [[127, 0, 0, 1], [0, 0, 0, 0]] {
        let shared = RawSettings {
            grpc_addr: at(7400),
            peer_addr: Some((everywhere, 7400).into()),
            insecure: Some(true),
            ..minimal()
        };
        let refused = shared.check().unwrap_err().to_string();
        assert!(refused.starts_with("--peer-addr: "), "{refused}");
        assert!(refused.contains("--grpc-addr"), "{refused}");
    }
    let exposed = RawSettings {
        peer_addr: Some(([10, 0, 0, 1], 7500).into()),
        ..minimal()
    };
    assert!(matches!(exposed.check(), Err(ConfigError::Exposed { .. })));
}

#[test]
fn a_peer_address_is_advertised_as_the_host_of_clients_unless_it_is_given() {
    let bound = ([10, 0, 0, 1], 7500).into();
    let address = |advertise_addr: Option<&str>, advertise_peer_addr: Option<&str>| {
        let settings = RawSettings {
            advertise_addr: advertise_addr.map(Into::into),
            advertise_peer_addr: advertise_peer_addr.map(Into::into),
            ..minimal()
        };
        settings.check().unwrap().peer_address(bound)
    };
    assert_eq!(address(None, None), "10.0.0.1:7500");
    assert_eq!(address(Some("torc-1:7400"), None), "torc-1:7500");
    assert_eq!(address(Some("[fd00::1]:7400"), None), "[fd00::1]:7500");
    assert_eq!(address(Some("torc-1:7400"), Some("inner:1")), "inner:1");
}

#[test]
fn an_unknown_key_in_the_file_is_refused_with_its_name() {
    let parse = |text| RawSettings::parse(Path::new("torc.toml"), text);
    let told = |text| parse(text).unwrap_err().to_string();
    let expected = "torc.toml: there is no setting `zonne`: did you mean `zone`?";
    assert_eq!(told("zonne = 'b'"), expected);
    let far = "torc.toml: there is no setting `qqq`";
    assert_eq!(told("qqq = 1"), far);
    assert!(parse("zone = 'b'\ndata-dir = '/d'").is_ok());
    assert!(told("weight = 1\nzone = 3").contains("line 2, `zone`: "));
}

#[test]
fn a_non_loopback_address_needs_insecure_and_a_name_for_others() {
    let exposed = RawSettings {
        grpc_addr: Some(([0, 0, 0, 0], 7400).into()),
        ..minimal()
    };
    assert!(matches!(
        exposed.clone().check(),
        Err(ConfigError::Exposed { .. })
    ));
    let nameless = RawSettings {
        insecure: Some(true),
        ..exposed
    };
    let error = nameless.clone().check().unwrap_err();
    assert!(
        error.to_string().starts_with("--advertise-addr: "),
        "{error}"
    );
    let named = RawSettings {
        advertise_addr: Some("torc-1:7400".into()),
        ..nameless
    };
    assert!(named.check().is_ok());
}

#[test]
fn tls_takes_all_its_files_and_then_any_address_may_be_served_on() {
    let some = |name: &str| Some(PathBuf::from(name));
    let exposed = RawSettings {
        http_addr: Some(([10, 0, 0, 1], 7480).into()),
        tls_cert: some("c.pem"),
        tls_key: some("k.pem"),
        tls_ca: some("ca.pem"),
        ..minimal()
    };
    let settings = exposed.clone().check().unwrap();
    assert!(settings.tls.is_some_and(|tls| !tls.tls12));
    let partial = RawSettings {
        tls_ca: None,
        ..exposed
    };
    let error = partial.check().unwrap_err();
    assert!(
        error.to_string().starts_with("--tls-ca is missing: "),
        "{error}"
    );
}

#[test]
fn a_secure_node_finds_its_certificates_and_takes_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let raw = || RawSettings {
        data_dir: Some(dir.path().to_owned()),
        http_addr: Some(([10, 0, 0, 1], 7480).into()),
        ..RawSettings::default()
    };
    let asked = || RawSettings {
        secure: Some(true),
        ..raw()
    };
    assert!(matches!(raw().check(), Err(ConfigError::Exposed { .. })));
    let settings = asked().check().unwrap();
    let files = TlsDir::of(dir.path()).files();
    assert_eq!(settings.tls.unwrap().files, files);
    assert!(settings.secure.is_some());
    let names = asked().check().unwrap();
    let names = names.names([SocketAddr::from(([10, 0, 0, 1], 7480))].into_iter());
    assert_eq!(names, ["10.0.0.1", "127.0.0.1", "::1", "localhost"]);

    let refused = |raw: RawSettings| raw.check().unwrap_err().to_string();
    let with_files = RawSettings {
        tls_cert: Some("c.pem".into()),
        ..asked()
    };
    assert!(refused(with_files).starts_with("--secure "));
    let with_others = RawSettings {
        bootstrap: Some(true),
        found_with: Some(vec!["a:1".into()]),
        ..asked()
    };
    assert!(refused(with_others).starts_with("--found-with: "));
    let secret = "c0".repeat(32);
    let joining = |text: String| RawSettings {
        bootstrap: Some(true),
        join: Some(text.into()),
        ..raw()
    };
    let token = format!("{:016x}.{secret}.{}@a:1", 1, "ab".repeat(32));
    for text in [format!("1.{secret}"), token] {
        let shown = format!("{:?}", joining(text.clone()));
        let refused = refused(joining(text));
        assert!(refused.starts_with("--join"), "{refused}");
        assert!(!refused.contains(&secret) && !shown.contains(&secret));
    }

    TlsDir::of(dir.path()).found().unwrap();
    assert!(raw().check().unwrap().secure.is_some(), "it is there");
    let named = RawSettings {
        tls_cert: Some(files.certificate),
        tls_key: Some(files.key),
        tls_ca: Some(files.authorities),
        ..raw()
    };
    assert!(named.check().unwrap().secure.is_some(), "they are its own");
    let plain = RawSettings {
        secure: Some(false),
        ..raw()
    };
    assert!(matches!(plain.check(), Err(ConfigError::Exposed { .. })));
}

#[test]
fn settings_out_of_range_are_named() {
    let bad = [
        ("data-dir", RawSettings::default()),
        (
            "weight",
            RawSettings {
                weight: Some(0),
                ..minimal()
            },
        ),
        (
            "partitions",
            RawSettings {
                partitions: Some(1000),
                ..minimal()
            },
        ),
        (
            "positions",
            RawSettings {
                positions: Some(0),
                ..minimal()
            },
        ),
        (
            "hot-keys-k",
            RawSettings {
                hot_keys_k: Some(5_000),
                ..minimal()
            },
        ),
        (
            "hot-keys-epsilon",
            RawSettings {
                hot_keys_epsilon: Some(0.001),
                ..minimal()
            },
        ),
        (
            "hot-keys-delta",
            RawSettings {
                hot_keys_delta: Some(1.5),
                ..minimal()
            },
        ),
        (
            "memtable-limit-mib",
            RawSettings {
                memtable_limit_mib: Some(0),
                ..minimal()
            },
        ),
        (
            "advertise-addr",
            RawSettings {
                advertise_addr: Some("host".into()),
                ..minimal()
            },
        ),
        (
            "resp-db",
            RawSettings {
                resp_db: Some(vec!["1024=urls".into()]),
                ..minimal()
            },
        ),
        (
            "resp-db",
            RawSettings {
                resp_db: Some(vec!["1=urls".into(), "1=users".into()]),
                ..minimal()
            },
        ),
        (
            "found-with",
            RawSettings {
                found_with: Some(vec!["a:1".into()]),
                ..minimal()
            },
        ),
    ];
    for (name, raw) in bad {
        let error = raw.check().unwrap_err();
        let told = error.to_string();
        let told = told.split([':', ' ']).next();
        assert_eq!(told, Some(format!("--{name}").as_str()), "{error}");
    }
}
