//! The inner product of two sketches: the size of a join, the bias of the lecture's estimate, and
//! its correction.

use anyhow::Result;
use torc_sketch::{CountMin, SeedStream, Shape};

use super::super::claim::{Claim, Says};
use super::{Sizes, digest, skewed};
use torc_plot::{Axis, Plot};

/// Two tables, given as rows per student.
struct Tables {
    clubs: Vec<i64>,
    courses: Vec<i64>,
}

impl Tables {
    /// The lecture's tables: student 1 is in two clubs and two courses, student 2 in one club and
    /// two courses.
    fn of_the_lecture() -> Self {
        Self {
            clubs: vec![2, 1],
            courses: vec![2, 2],
        }
    }

    /// A given number of students, in some clubs and courses; some are in many clubs.
    fn larger(students: usize, seeds: &mut SeedStream) -> Self {
        let mut clubs = vec![0; students];
        (0..2 * students).for_each(|_| clubs[skewed(seeds, students as u64) as usize] += 1);
        let courses = (0..students).map(|_| 1 + seeds.below(6) as i64).collect();
        Self { clubs, courses }
    }

    fn join(&self) -> f64 {
        let products = self.clubs.iter().zip(&self.courses).map(|(a, b)| a * b);
        products.sum::<i64>() as f64
    }

    fn norms(&self) -> f64 {
        self.clubs.iter().sum::<i64>() as f64 * self.courses.iter().sum::<i64>() as f64
    }

    /// The lecture's estimate and the unbiased one.
    fn estimates(&self, shape: Shape, seed: u64) -> Result<(f64, f64)> {
        let sketch = |counts: &[i64]| {
            let mut sketch = CountMin::new(shape, seed);
            for (student, count) in counts.iter().enumerate() {
                sketch.add(&digest(student as u64), *count);
            }
            sketch
        };
        let product = sketch(&self.clubs).inner_product(&sketch(&self.courses))?;
        Ok((product.upper as f64, product.estimate))
    }
}

pub(in crate::theory) fn measure(sizes: &Sizes) -> Result<Claim> {
    let mut claim = Claim::new("Lecture, inner product: <a, b> <= Ĉ <= <a, b> + ε |a| |b|");
    let mut plot = Plot::new(
        "Lecture: the size of a join over its truth, 10,000 students",
        Axis::log("m, counters a row"),
        Axis::linear("estimate / truth"),
    );
    let mut seeds = SeedStream::new(sizes.seed);
    let lecture = Tables::of_the_lecture();
    claim.row(
        "the lecture's tables",
        ("<a, b>", "rows"),
        Says::Is(6.0),
        lecture.join(),
    );
    let draws = sizes.of(2_000);
    for width_log2 in [2, 4, 8] {
        // One row: the minimum of several would hide the bias.
        means(
            &mut claim,
            "the lecture's tables",
            &lecture,
            (Shape::new(width_log2, 1)?, draws),
            &mut seeds,
        )?;
    }
    let students = sizes.of(10_000);
    let larger = Tables::larger(students, &mut seeds);
    let name = format!("{students} students");
    let (mut biased, mut unbiased, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    for width_log2 in [6, 8, 10, 12, 14] {
        let shape = Shape::new(width_log2, 1)?;
        let rounds = (draws / 40).max(2);
        let [upper, estimate] = means(&mut claim, &name, &larger, (shape, rounds), &mut seeds)?;
        let (m, truth) = (shape.width() as f64, larger.join());
        expected.push((m, 1.0 + (larger.norms() - truth) / m / truth));
        biased.push((m, upper / truth));
        unbiased.push((m, estimate / truth));
    }
    plot.dashed("1 + (|a||b| - <a, b>) / (m <a, b>)", expected);
    plot.measured("the lecture's, one row", biased);
    plot.measured("without bias", unbiased);
    claim.plot(&plot);
    claim.why("E[row] = <a, b> + (|a||b| - <a, b>)/m: pairs of different students meet in a counter with probability 1/m. So the lecture's estimate is never too low, and too high by that on average.");
    claim.why("Solved for <a, b>, (m P - |a||b|)/(m - 1) has no bias; it may come out too low. What is left is chance: its mean strays from the truth by its deviation over the root of the draws.");
    claim.why("The minimum of T rows is less biased than one row, but always at least the truth.");
    Ok(claim)
}

/// Adds the means of both estimates over repeatedly drawn hashes.
fn means(
    claim: &mut Claim,
    name: &str,
    tables: &Tables,
    (shape, draws): (Shape, usize),
    seeds: &mut SeedStream,
) -> Result<[f64; 2]> {
    let (mut upper, mut estimate, mut too_low) = (0.0, 0.0, 0.0);
    for _ in 0..draws {
        let (biased, unbiased) = tables.estimates(shape, seeds.next_u64())?;
        upper += biased / draws as f64;
        estimate += unbiased / draws as f64;
        too_low += f64::from(u8::from(biased < tables.join()));
    }
    let m = shape.width() as f64;
    let expected = tables.join() + (tables.norms() - tables.join()) / m;
    let case = format!("{name}, m = {m}");
    claim.row(
        &case,
        ("the lecture's estimate, mean", "rows"),
        Says::Is(expected),
        upper,
    );
    claim.row(
        &case,
        ("without bias, mean", "rows"),
        Says::Is(tables.join()),
        estimate,
    );
    claim.row(
        &case,
        ("the lecture's below the truth", "times"),
        Says::Is(0.0),
        too_low,
    );
    Ok([upper, estimate])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over 4,000 sketches with 4 counters: the two students collide with probability 1/4, which
    /// adds 6, so the mean is 7.5 with a deviation of 6 sqrt(3/16 / 4000) = 0.041.
    #[test]
    fn the_lectures_example_comes_to_6_and_its_bias_to_6_over_m() {
        let tables = Tables::of_the_lecture();
        assert!((tables.join() - 6.0).abs() < 1e-12 && (tables.norms() - 12.0).abs() < 1e-12);
        let (mut claim, mut seeds) = (Claim::new(""), SeedStream::new(1));
        let shape = Shape::new(2, 1).unwrap();
        let [upper, estimate] = means(&mut claim, "", &tables, (shape, 4_000), &mut seeds).unwrap();
        assert!((upper - 7.5).abs() < 5.0 * 0.041, "{upper}");
        assert!(
            (estimate - 6.0).abs() < 5.0 * 0.041 * 4.0 / 3.0,
            "{estimate}"
        );
    }
}
