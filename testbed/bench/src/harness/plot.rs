//! A plot of CPU seconds per GiB, or GiB/s, against streams or clients, with a panel for each job, as SVG.

use crate::failure::{Exit, Failure};
use crate::report::Report;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Pixels of a panel.
const PANEL: (u32, u32) = (620, 380);
const COLUMNS: usize = 2;
/// Width of the legend, as a share of the curves' width.
const LEGEND: f64 = 0.42;
/// Colours that colour-blind people can distinguish (Okabe and Ito, and two more), in the order of the contenders.
const COLOURS: [RGBColor; 10] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(90, 90, 90),
    RGBColor(240, 228, 66),
    RGBColor(0, 0, 0),
    RGBColor(153, 79, 0),
];

pub type Failed = Box<dyn std::error::Error>;

/// A point of the plot.
pub struct Point<'a> {
    pub panel: String,
    pub series: &'a str,
    /// Streams or clients.
    pub x: usize,
    /// Value on the vertical axis.
    pub y: f64,
}

/// Draws the plot. `series`: all possible series, each with its own colour. `axes`: labels of the horizontal and the vertical
/// axis.
pub fn draw(
    points: &[Point<'_>],
    series: &[&str],
    axes: (&str, &str),
    path: &Path,
    report: &Report,
) -> Result<(), Failure> {
    written(all(points, series, axes, path), path, report)
}

/// Reports the path of the plot, or why there is none.
pub fn written(drawn: Result<(), Failed>, path: &Path, report: &Report) -> Result<(), Failure> {
    drawn.map_err(|error| {
        Failure::new(Exit::Failed, format!("{}: {error}", path.display())).advise("check the folder of --svg")
    })?;
    report.remark(format_args!("the plot is in {}", path.display()));
    Ok(())
}

/// Groups points into panels, in the order in which they occur.
pub fn panels<'a, T>(all: &'a [T], title: impl Fn(&'a T) -> &'a str) -> Vec<(&'a str, Vec<&'a T>)> {
    let mut panels: Vec<(&str, Vec<&T>)> = Vec::new();
    for one in all {
        match panels.iter_mut().find(|(known, _)| *known == title(one)) {
            Some((_, shown)) => shown.push(one),
            None => panels.push((title(one), vec![one])),
        }
    }
    panels
}

/// Returns rows and columns for this many panels.
pub fn grid(panels: usize) -> (usize, usize) {
    let columns = COLUMNS.min(panels.max(1));
    (panels.div_ceil(columns).max(1), columns)
}

/// Returns the path of one of several plots with a common name.
pub fn named(path: &Path, which: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{which}.svg"))
}

fn all(points: &[Point<'_>], series: &[&str], axes: (&str, &str), path: &Path) -> Result<(), Failed> {
    let panels = panels(points, |point| &point.panel);
    let (lines, columns) = grid(panels.len());
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, points)) in root.split_evenly((lines, columns)).iter().zip(&panels) {
        panel(area, title, points, series, axes)?;
    }
    root.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    all: &[&Point<'_>],
    series: &[&str],
    axes: (&str, &str),
) -> Result<(), Failed> {
    let mut counts: Vec<usize> = all.iter().map(|point| point.x).collect();
    counts.sort_unstable();
    counts.dedup();
    let place = |count: usize| counts.iter().position(|known| *known == count).unwrap_or(0) as f64;
    let most = all.iter().map(|point| point.y).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.08 } else { 1.0 };
    // Room for the legend, to the right of the curves.
    let right = (counts.len() as f64 - 0.6) + LEGEND * (counts.len() as f64 - 0.2);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.4..right, 0.0..top)?;
    let label = |at: &f64| {
        let whole = (at - at.round()).abs() < 1e-6 && *at >= -0.1;
        let known = counts.get(at.round() as usize).filter(|_| whole);
        known.map_or(String::new(), ToString::to_string)
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(counts.len() * 3 + 3)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| format!("{value:.2}"))
        .x_desc(axes.0)
        .y_desc(axes.1)
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (name, colour) in series.iter().zip(COLOURS) {
        let mut points: Vec<(f64, f64)> =
            all.iter().filter(|point| point.series == *name).map(|point| (place(point.x), point.y)).collect();
        if points.is_empty() {
            continue;
        }
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_have_names_of_their_own() {
        assert_eq!(named(Path::new("a/apps.svg"), "swift"), Path::new("a/apps-swift.svg"));
    }
}
