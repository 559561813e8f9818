//! Roles of clients.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A client's permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Role {
    /// Read values and keys.
    Read = 1,
    /// Write and delete keys.
    Write = 2,
    /// See the cluster's state: status, ring, metrics, hot keys, explanations of keys.
    Observe = 4,
    /// Change the cluster and its namespaces; includes every other role.
    Admin = 8,
}

/// Text that is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`: use read, write, observe or admin")]
pub struct UnknownRole(pub String);

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Observe, Self::Admin];

    /// Its name in certificates, scopes and flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Observe => "observe",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let named = Self::ALL.into_iter().find(|role| role.name() == text);
        named.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// A set of roles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles(u8);

impl Roles {
    /// Whether this role is among them, or `admin`, which includes it.
    #[must_use]
    pub const fn allow(self, role: Role) -> bool {
        self.0 & (role as u8 | Role::Admin as u8) != 0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, in the order of [`Role::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Role> {
        let all = Role::ALL.into_iter();
        all.filter(move |role| self.0 & *role as u8 != 0)
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |all, role| all | role as u8))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, role) in self.iter().enumerate() {
            let plus = if number == 0 { "" } else { "+" };
            write!(f, "{plus}{role}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(of: &[Role]) -> Roles {
        of.iter().copied().collect()
    }

    #[test]
    fn an_admin_may_do_everything_and_others_what_they_hold() {
        for role in Role::ALL {
            assert!(roles(&[Role::Admin]).allow(role));
            assert!(roles(&[role]).allow(role));
            assert!(!Roles::default().allow(role));
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!(!roles(&[Role::Read]).allow(Role::Write));
        assert!(!roles(&[Role::Read, Role::Write, Role::Observe]).allow(Role::Admin));
        assert!("root".parse::<Role>().is_err());
    }
}
