//! A server that is spoken to over TLS.

use std::net::TcpListener;

use tenure::store::{RedisOptions, RedisStore, RefusedKind, Store, StoreError};

use super::certificates::Certificates;
use super::{Named, block_on, redis_server};

pub(super) const TESTS: &[Named] =
    &[("tls_is_spoken_to_a_server_that_somebody_vouches_for_and_to_no_other", tls)];

fn tls() {
    block_on(async {
        let certificates = Certificates::new();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let [authority, other, cert, key] =
            ["authority.pem", "other.pem", "server.pem", "server.key"].map(|name| certificates.path(name));
        let _server = redis_server::Server::start(&[
            "--tls-port",
            &free,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &authority,
            "--tls-auth-clients",
            "no",
        ])
        .unwrap();
        let open = async |url: String| RedisStore::open(RedisOptions::new(url)).await;
        let store = open(format!("rediss://localhost:{free}/0?sslrootcert={authority}")).await.unwrap();
        // And the channel of its hints.
        assert!(store.counts(None).await.unwrap().is_empty());
        store.close().await.unwrap();

        for (url, says) in [
            (
                format!("rediss://:secret@localhost:{free}/0"),
                "name the certificate of its authority: sslrootcert=FILE",
            ),
            (format!("rediss://localhost:{free}/0?sslrootcert={other}"), "sslrootcert=FILE"),
            (
                format!("rediss://127.0.0.1:{free}/0?sslrootcert={authority}"),
                "name the host that its certificate is for",
            ),
            (
                format!("rediss://localhost:{free}/0?sslrootcert=/nowhere.pem"),
                "sslrootcert=\"/nowhere.pem\" cannot be read",
            ),
            (format!("redis://localhost:{free}/0?sslrootcert={authority}"), "rediss://"),
        ] {
            match open(url).await {
                Err(StoreError::Refused { kind: RefusedKind::Invalid, message }) => {
                    assert!(message.contains(says) && !message.contains("secret"), "{message}");
                }
                other => panic!("{says:?} was expected: {other:?}"),
            }
        }
    });
}
