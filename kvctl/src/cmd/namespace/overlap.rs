//! `kvctl namespace overlap`: estimates the keys that two namespaces share.

use std::time::Duration;

use torc_client::{FieldJoin, FieldJoinSide, Overlap, OverlapJoin, OverlapOptions, OverlapSet};

use crate::args::positive_duration;
use crate::failure::Failure;
use crate::global::Global;
use crate::out::{Out, note};
use crate::text;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A namespace.
    #[arg(value_name = "A")]
    a: String,
    /// The namespace to compare it with.
    #[arg(value_name = "B")]
    b: String,
    /// How far back accesses count, for example 60s; at most 24h.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = positive_duration)]
    window: Duration,
    /// Instead, estimate the join size on this field of JSON values: pairs of records with the same
    /// string, number or boolean in it. Either a top-level field or a JSON pointer such as
    /// /user/id.
    #[arg(long, value_name = "FIELD", conflicts_with = "window", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    on: Option<String>,
}

pub(super) async fn run(args: Args, global: &Global, out: &mut Out) -> Result<(), Failure> {
    if let Some(field) = args.on {
        let join = global.client()?.overlap_on(args.a, args.b, field).await?;
        return if global.json() {
            out.json(&join)
        } else {
            out.line(describe_field(&join))
        };
    }
    let options = OverlapOptions {
        window: Some(args.window),
    };
    let overlap = global.client()?.overlap(args.a, args.b, options).await?;
    if global.json() {
        out.json(&overlap)?;
    } else {
        out.line(describe(&overlap))?;
    }
    out.flush()?;
    if let Some(problem) = &overlap.join_problem {
        note(format!("no join size: {}", text::one_line(problem)));
    }
    Ok(())
}

fn describe(overlap: &Overlap) -> String {
    let Overlap {
        a, b, shared_keys, ..
    } = overlap;
    let mut lines = vec![
        format!(
            "shared keys  {} ± {}: {} of {} and {} of {}",
            text::count(shared_keys.estimate),
            text::count(shared_keys.error),
            share(shared_keys.estimate, a),
            set(a),
            share(shared_keys.estimate, b),
            set(b),
        ),
        "             ± is 3 sqrt((|A| |B| + shared²) / (5 · 65,536)); it holds with probability 8/9 \
         or more"
            .to_owned(),
    ];
    if let Some(join) = &overlap.join {
        lines.extend(describe_join(join, overlap));
    }
    lines.push(cost(
        overlap.records_read,
        overlap.nodes,
        overlap.bytes_moved,
    ));
    lines.join("\n")
}

fn cost(records: u64, nodes: u32, bytes: u64) -> String {
    format!(
        "{} read at {}, {} moved",
        text::counted(records, "record"),
        text::counted(nodes.into(), "node"),
        text::bytes(bytes),
    )
}

fn describe_field(join: &FieldJoin) -> String {
    let FieldJoin { a, b, on, size, .. } = join;
    [
        format!(
            "join on {}  {} ± {} pairs of records, at most {}; of {} in {} and {} in {}",
            text::one_line(on),
            size.estimate,
            size.error,
            size.upper,
            text::counted(a.rows, "row"),
            a.namespace,
            text::count(b.rows),
            b.namespace,
        ),
        "± is 3 sqrt((F₂(a) F₂(b) + join²) / (5 · 65,536)), F₂ the sum of rows² over values; it holds with \
         probability 8/9 or more"
            .to_owned(),
        left_out(a),
        left_out(b),
        cost(join.records_read, join.nodes, join.bytes_moved),
    ]
    .join("\n")
}

/// The records that can join with nothing.
fn left_out(side: &FieldJoinSide) -> String {
    format!(
        "left out of {}: {} not JSON, {} without the field, {} with null, an array or an object in it",
        side.namespace,
        text::count(side.not_json),
        text::count(side.without_field),
        text::count(side.not_scalar),
    )
}

fn describe_join(join: &OverlapJoin, overlap: &Overlap) -> Vec<String> {
    let of = |set: &OverlapSet| format!("{} in {}", text::count(set.accesses), set.namespace);
    let mut lines = vec![
        format!(
            "join size    {} by the accesses of hot keys ({}, {}), too high by {} at most",
            join.upper,
            of(&overlap.a),
            of(&overlap.b),
            join.error,
        ),
        "             that is ε |a| |b| + e (|a| + |b|), ε = 1/32,768, e a count's error; either part \
         fails with probability 1/32 or less"
            .to_owned(),
        format!(
            "             counted from {} to {}",
            text::timestamp(join.from_ms),
            text::timestamp(join.to_ms),
        ),
    ];
    if join.unseen > 0 {
        lines.push(format!(
            "             keys with fewer than {} were not compared; they add at most {}",
            text::accesses(join.complete_from),
            text::count(u64::try_from(join.unseen).unwrap_or(u64::MAX)),
        ));
    }
    lines
}

fn share(keys: u64, set: &OverlapSet) -> String {
    text::percent(keys as f64 / set.keys as f64)
}

fn set(set: &OverlapSet) -> String {
    format!("{} ({})", set.namespace, text::counted(set.keys, "key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_client::{FieldJoinEstimate, OverlapEstimate};

    fn overlap() -> Overlap {
        let set = |namespace: &str, keys, accesses| OverlapSet {
            namespace: namespace.into(),
            keys,
            accesses,
        };
        Overlap {
            a: set("urls", 200_000, 700),
            b: set("seen", 100_000, 90),
            shared_keys: OverlapEstimate {
                estimate: 20_103,
                error: 743,
                confidence: 8.0 / 9.0,
            },
            join: Some(OverlapJoin {
                upper: 6_300,
                error: 12,
                delta: 1.0 / 32.0,
                unseen: 790,
                complete_from: 4,
                from_ms: 0,
                to_ms: 60_000,
            }),
            join_problem: None,
            nodes: 3,
            records_read: 300_000,
            bytes_moved: 3 << 20,
        }
    }

    #[test]
    fn both_estimates_come_with_errors_formulas_and_cost() {
        let expected = "\
shared keys  20,103 ± 743: 10.1 % of urls (200,000 keys) and 20.1 % of seen (100,000 keys)
             ± is 3 sqrt((|A| |B| + shared²) / (5 · 65,536)); it holds with probability 8/9 or more
join size    6300 by the accesses of hot keys (700 in urls, 90 in seen), too high by 12 at most
             that is ε |a| |b| + e (|a| + |b|), ε = 1/32,768, e a count's error; either part fails with probability 1/32 or less
             counted from 1970-01-01T00:00:00.000Z to 1970-01-01T00:01:00.000Z
             keys with fewer than 4 accesses were not compared; they add at most 790
300,000 records read at 3 nodes, 3.00 MiB moved";
        assert_eq!(describe(&overlap()), expected);
    }

    #[test]
    fn keys_that_were_not_compared_are_named_only_if_they_can_add_something() {
        let mut all_compared = overlap();
        if let Some(join) = &mut all_compared.join {
            join.unseen = 0;
        }
        let text = describe(&all_compared);
        assert!(!text.contains("not compared"), "{text}");
    }

    #[test]
    fn without_accesses_the_keys_are_told_all_the_same() {
        let without = Overlap {
            join: None,
            join_problem: Some("switched off".into()),
            nodes: 1,
            ..overlap()
        };
        let text = describe(&without);
        assert!(text.starts_with("shared keys") && !text.contains("join"));
        assert!(text.contains("at 1 node,"), "{text}");
    }

    #[test]
    fn a_join_on_a_field_says_what_it_left_out() {
        let side = |namespace: &str, rows| FieldJoinSide {
            namespace: namespace.into(),
            rows,
            not_json: 1,
            without_field: 2_000,
            not_scalar: 3,
        };
        let join = FieldJoin {
            a: side("clubs", 3),
            b: side("courses", 4),
            on: "student".into(),
            size: FieldJoinEstimate {
                estimate: 6,
                error: 1,
                confidence: 8.0 / 9.0,
                upper: 6,
                upper_error: 1,
                delta: 1.0 / 32.0,
            },
            nodes: 1,
            records_read: 4_015,
            bytes_moved: 600,
        };
        let expected = "\
join on student  6 ± 1 pairs of records, at most 6; of 3 rows in clubs and 4 in courses
± is 3 sqrt((F₂(a) F₂(b) + join²) / (5 · 65,536)), F₂ the sum of rows² over values; it holds with probability 8/9 or more
left out of clubs: 1 not JSON, 2,000 without the field, 3 with null, an array or an object in it
left out of courses: 1 not JSON, 2,000 without the field, 3 with null, an array or an object in it
4,015 records read at 1 node, 600 B moved";
        assert_eq!(describe_field(&join), expected);
        crate::out::assert_documented(&join);
    }

    #[test]
    fn the_json_is_documented() {
        crate::out::assert_documented(&overlap());
        let json = serde_json::to_value(overlap()).unwrap();
        assert_eq!(json["shared_keys"]["estimate"], 20_103);
        assert_eq!(json["join"]["upper"], 6_300);
        assert!(json["join_problem"].is_null());
    }
}
