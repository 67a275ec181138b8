//! Scaling curves as an SVG: panels side by side, both axes logarithmic.

use core::fmt::Write;

/// One line of a panel.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    /// How many, and the time of each in microseconds.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One picture.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// What is counted.
    pub(crate) of: &'static str,
    pub(crate) curves: Vec<Curve>,
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 360.0;
/// Around the axes: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (70.0, 20.0, 40.0, 50.0);
const COLORS: [&str; 4] = ["#0b6e4f", "#c1440e", "#2b4c7e", "#7a5195"];

/// The whole file. Values that are not above 0 have no place on such an axis and
/// are left out.
pub(crate) fn svg(panels: &[Panel]) -> String {
    let width = WIDTH * panels.len().max(1) as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {width} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (at, panel) in panels.iter().enumerate() {
        // Writing to a String never fails.
        let _ = writeln!(text, "<g transform=\"translate({} 0)\">", WIDTH * at as f64);
        draw(&mut text, panel);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// From powers of ten to pixels.
struct Axis {
    /// Powers of ten at both ends.
    from: f64,
    to: f64,
    /// Pixels at both ends.
    start: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value.log10());
            high = high.max(value.log10());
        }
        if !low.is_finite() || !high.is_finite() {
            (low, high) = (0.0, 1.0);
        }
        let from = low.floor();
        let to = high.ceil().max(from + 1.0);
        Self {
            from,
            to,
            start,
            end,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let part = (value.log10() - self.from) / (self.to - self.from);
        self.start + part * (self.end - self.start)
    }

    /// The powers of ten.
    fn marks(&self) -> impl Iterator<Item = f64> + use<> {
        let (from, to) = (self.from as i32, self.to as i32);
        (from..=to).map(|power| 10_f64.powi(power))
    }
}

fn draw(text: &mut String, panel: &Panel) {
    let (left, right, top, bottom) = MARGIN;
    let points = || {
        let all = panel.curves.iter().flat_map(|curve| &curve.points);
        all.copied().filter(|(x, y)| *x > 0.0 && *y > 0.0)
    };
    let across = Axis::over(points().map(|point| point.0), left, WIDTH - right);
    let up = Axis::over(points().map(|point| point.1), HEIGHT - bottom, top);
    let _ = writeln!(
        text,
        "<text x=\"{left}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>",
        panel.title
    );
    for mark in across.marks() {
        let x = across.place(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}</text>",
            up.start,
            up.start + 16.0
        );
    }
    for mark in up.marks() {
        let y = up.place(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mark} us</text>",
            across.start,
            across.end,
            across.start - 6.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(across.start, across.end),
        HEIGHT - 12.0,
        panel.of
    );
    for (at, (curve, color)) in panel.curves.iter().zip(COLORS).enumerate() {
        let places: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter(|(x, y)| *x > 0.0 && *y > 0.0)
            .map(|(x, y)| (across.place(*x), up.place(*y)))
            .collect();
        let line: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{color}\"/>"
            );
        }
        let y = top + 14.0 * at as f64 + 12.0;
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"{color}\">{}</text>",
            across.end - 6.0,
            curve.name
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: Vec<(f64, f64)>) -> Panel {
        Panel {
            title: "windows",
            of: "windows of one allocation",
            curves: vec![Curve {
                name: "library",
                points,
            }],
        }
    }

    #[test]
    fn points_lie_where_their_logarithms_do() {
        let text = svg(&[panel(vec![(1.0, 0.1), (10.0, 1.0), (100.0, 10.0)])]);
        // Left and bottom, the middle, right and top.
        assert!(
            text.contains("points=\"70.0,310.0 265.0,175.0 460.0,40.0\""),
            "{text}"
        );
        assert!(text.contains(">100</text>") && text.contains(">0.1 us</text>"));
    }

    #[test]
    fn every_element_that_opens_closes() {
        let text = svg(&[panel(vec![(1.0, 2.0)]), panel(Vec::new())]);
        assert_eq!(
            text.matches("<g ").count(),
            text.matches("</g>").count(),
            "{text}"
        );
        assert_eq!(
            text.matches("<text").count(),
            text.matches("</text>").count()
        );
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert!(text.contains("width=\"960\""));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn what_has_no_logarithm_is_left_out() {
        let text = svg(&[panel(vec![(1.0, 0.0), (2.0, -3.0), (10.0, 5.0)])]);
        assert_eq!(text.matches("<circle").count(), 1, "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
