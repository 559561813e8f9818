//! Hides the secrets of messages in `Debug`.

use std::fmt;

use crate::v1::{CreateTokenResponse, EnrolNodeRequest, EnrolNodeResponse, GiveAuthorityResponse};

impl fmt::Debug for CreateTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CreateTokenResponse");
        shown.field("token", &self.token).finish_non_exhaustive()
    }
}

impl fmt::Debug for EnrolNodeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EnrolNodeRequest");
        shown.field("names", &self.names).finish_non_exhaustive()
    }
}

impl fmt::Debug for EnrolNodeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EnrolNodeResponse");
        let shown = shown.field("certificate", &self.certificate);
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for GiveAuthorityResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GiveAuthorityResponse")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enrolment_shows_neither_the_token_nor_the_key() {
        let asked = EnrolNodeRequest {
            token: "0123.secret".into(),
            ..EnrolNodeRequest::default()
        };
        let answered = EnrolNodeResponse {
            authority_key: "secret".into(),
            ..EnrolNodeResponse::default()
        };
        let given = GiveAuthorityResponse {
            key: "secret".into(),
        };
        assert!(!format!("{asked:?} {answered:?} {given:?}").contains("secret"));
    }

    #[test]
    fn a_new_token_does_not_show_its_secret() {
        let answer = CreateTokenResponse {
            bearer: "0123.secret".into(),
            ..CreateTokenResponse::default()
        };
        assert!(!format!("{answer:?}").contains("secret"));
    }
}
