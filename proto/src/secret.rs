//! Messages that hold a secret and do not show it.

use std::fmt;

use crate::v1::CreateTokenResponse;

impl fmt::Debug for CreateTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CreateTokenResponse");
        shown.field("token", &self.token).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_does_not_show_its_secret() {
        let answer = CreateTokenResponse {
            bearer: "0123.secret".into(),
            ..CreateTokenResponse::default()
        };
        assert!(!format!("{answer:?}").contains("secret"));
    }
}
