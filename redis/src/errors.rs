//! Faults as errors for Redis clients: a first word that says what to do, then the reason.

use torc_proto::{Fault, Reason};

/// A fault as the text of an error, which begins with one of these words:
/// * `OUTCOMEUNKNOWN`: the write may have happened, or may still happen. Read the key before you
///   retry.
/// * `UNAVAILABLE`, `OVERLOADED`, `OOM`, `TRYAGAIN`: nothing was changed; retry.
/// * `NOPERM`, `NOAUTH`: the credentials do not allow it. `ERR`: it cannot succeed in this form.
pub(super) fn text(fault: &Fault) -> String {
    format!("{} {}", kind(fault), fault.message)
}

fn kind(fault: &Fault) -> &'static str {
    if fault.maybe_applied {
        return "OUTCOMEUNKNOWN";
    }
    match fault.reason {
        Reason::OutcomeUnknown => "OUTCOMEUNKNOWN",
        Reason::Overloaded => "OVERLOADED",
        Reason::OutOfSpace => "OOM",
        Reason::ConditionNotMet => "TRYAGAIN",
        Reason::PermissionDenied => "NOPERM",
        Reason::Unauthenticated => "NOAUTH",
        Reason::StaleEpoch
        | Reason::NotServing
        | Reason::OwnerUnreachable
        | Reason::Deadline
        | Reason::NoTopologyLeader
        | Reason::WrongNode
        | Reason::Superseded => "UNAVAILABLE",
        _ => "ERR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_says_whether_something_may_have_changed() {
        let unknown = Fault::unknown("it may still take effect");
        assert_eq!(text(&unknown), "OUTCOMEUNKNOWN it may still take effect");
        let lost = Fault {
            maybe_applied: true,
            ..Fault::new(Reason::NotServing, "gone")
        };
        assert_eq!(text(&lost), "OUTCOMEUNKNOWN gone");
        let unavailable = Fault::new(Reason::OwnerUnreachable, "try again");
        assert_eq!(text(&unavailable), "UNAVAILABLE try again");
        let invalid = Fault::new(Reason::Invalid, "too long");
        assert_eq!(text(&invalid), "ERR too long");
    }
}
