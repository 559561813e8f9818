//! Any bytes are refused as what a stranger presents before a node or a client knows it, a certificate, a token or a
//! request for a certificate, or are understood the same way again. The first byte chooses which.

#![no_main]

use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use libfuzzer_sys::fuzz_target;
use rustls_pki_types::CertificateDer;
use torc_ring::topology::Bearer;
use torc_tls::{
    Authority, AuthorityDigest, CertificateFacts, Identity, JoinToken, PinnedToken, SigningRequest,
};

/// What is understood of a text is understood of its usual form, too.
fn reread<T: FromStr + PartialEq + Debug>(text: &str, shown: impl Fn(&T) -> String) {
    if let Ok(read) = text.parse::<T>() {
        let again = shown(&read).parse::<T>();
        assert_eq!(again.ok(), Some(read), "{text}");
    }
}

fn certificate(der: &[u8]) {
    let der = CertificateDer::from(der);
    let identity = Identity::of(&der);
    if let Some(facts) = CertificateFacts::of(&der) {
        assert_eq!(facts.identity, identity.clone().ok());
        assert!(facts.not_before <= facts.renew_at());
        assert_eq!(facts.digest, AuthorityDigest::of(&der));
    }
    if let Ok(identity) = identity {
        assert_eq!(identity.to_string().parse(), Ok(identity));
    }
}

fn signing_request(pem: &str) {
    static AUTHORITY: LazyLock<Authority> =
        LazyLock::new(|| Authority::new().expect("the system has random numbers"));
    let node = Identity::Node {
        cluster: None,
        node: None,
    };
    let Ok(request) = SigningRequest::open(pem) else {
        return;
    };
    // The key may be of a kind that the authority does not sign.
    let life = Duration::from_secs(90);
    if let Ok(signed) = AUTHORITY.sign(&request, &node, &["a.example".to_owned()], life) {
        let facts = CertificateFacts::of_pem(&signed, Path::new("signed")).expect("ours");
        assert_eq!(facts.len(), 1);
        assert_eq!(facts[0].identity.as_ref(), Some(&node));
        assert_eq!(facts[0].names, ["a.example"]);
        assert!(!facts[0].is_authority);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = str::from_utf8(bytes);
    match (kind % 4, text) {
        (0, _) => certificate(bytes),
        (1, _) => {
            let kind = "CERTIFICATE REQUEST-----\n";
            let base64 = BASE64_STANDARD.encode(bytes);
            signing_request(&format!("-----BEGIN {kind}{base64}\n-----END {kind}"));
        }
        (2, Ok(pem)) => {
            signing_request(pem);
            let _ = CertificateFacts::of_pem(pem, Path::new("presented"));
            let _ = Authority::open_all(pem, pem);
        }
        (_, Ok(text)) => {
            reread::<Identity>(text, Identity::to_string);
            reread::<AuthorityDigest>(text, AuthorityDigest::to_string);
            reread::<Bearer>(text, Bearer::reveal);
            reread::<PinnedToken>(text, PinnedToken::reveal);
            reread::<JoinToken>(text, JoinToken::reveal);
        }
        (_, Err(_)) => {}
    }
});
