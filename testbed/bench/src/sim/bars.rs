//! Stacked bars, a panel for each job, as SVG, in the papers' form.

use crate::failure::Failure;
use crate::harness::plot::{self, Failed};
use crate::report::Report;
use dcs_sim::cpu::Component;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const PANEL: (u32, u32) = (640, 400);
/// Height of the legend.
const LEGEND: u32 = 60;

/// A chart of bars.
pub struct Chart {
    /// Unit of the vertical axes, which are the same. If empty, titles name the unit, and panels of one quantity have the same axis:
    /// those whose titles begin with the same words, up to a colon or comma.
    pub unit: &'static str,
    /// Bars, in order.
    pub bars: Vec<Bar>,
}

/// A bar.
pub struct Bar {
    /// Its panel.
    pub panel: String,
    /// Its label, below the bar.
    pub label: String,
    /// Its parts, from the bottom.
    pub parts: Vec<(Component, f64)>,
}

/// Writes the chart to a file.
pub fn draw(chart: &Chart, path: &Path, report: &Report) -> Result<(), Failure> {
    let drawn = svg(chart).and_then(|text| Ok(std::fs::write(path, text)?));
    plot::written(drawn, path, report)
}

/// Returns warm colours for software, cold ones for devices, also distinguishable for colour-blind people (Okabe and Ito), and
/// greys.
fn colour(what: Component) -> RGBColor {
    match what {
        Component::Application => RGBColor(240, 228, 66),
        Component::Kernel => RGBColor(213, 94, 0),
        Component::Crossing => RGBColor(230, 159, 0),
        Component::Copy => RGBColor(204, 121, 167),
        Component::Control => RGBColor(153, 79, 0),
        Component::GpuControl => RGBColor(120, 40, 80),
        Component::Processing => RGBColor(255, 200, 170),
        Component::Guest => RGBColor(184, 134, 11),
        Component::Hypervisor => RGBColor(170, 20, 20),
        Component::Polling => RGBColor(200, 200, 200),
        Component::Card => RGBColor(0, 0, 0),
        Component::Ssd => RGBColor(0, 114, 178),
        Component::Network => RGBColor(86, 180, 233),
        Component::Bus => RGBColor(0, 60, 90),
        Component::Gpu => RGBColor(0, 158, 115),
        Component::Ndp => RGBColor(150, 220, 190),
        Component::Spinner => RGBColor(90, 90, 90),
    }
}

/// Returns the chart as SVG.
pub fn svg(chart: &Chart) -> Result<String, Failed> {
    let mut text = String::new();
    all(chart, &mut text)?;
    Ok(text)
}

fn all(chart: &Chart, text: &mut String) -> Result<(), Failed> {
    let panels = plot::panels(&chart.bars, |bar| &bar.panel);
    let (lines, columns) = plot::grid(panels.len());
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32 + LEGEND);
    let root = SVGBackend::with_string(text, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (top, below) = root.split_vertically(LEGEND);
    legend(&top, chart, size.0)?;
    let most = |title: &str| {
        let same =
            chart.bars.iter().filter(|bar| !chart.unit.is_empty() || quantity(&bar.panel) == quantity(title));
        same.map(height).fold(0.0, f64::max)
    };
    for (area, (title, bars)) in below.split_evenly((lines, columns)).iter().zip(&panels) {
        let most = most(title);
        panel(area, title, bars, chart.unit, if most > 0.0 { most * 1.06 } else { 1.0 })?;
    }
    root.present()?;
    Ok(())
}

/// Returns what a panel shows, by its title.
fn quantity(title: &str) -> &str {
    title.split([':', ',']).next().unwrap_or(title)
}

fn height(bar: &Bar) -> f64 {
    bar.parts.iter().map(|(_, part)| part).sum()
}

fn legend(area: &DrawingArea<SVGBackend<'_>, Shift>, chart: &Chart, width: u32) -> Result<(), Failed> {
    let there =
        |what: &Component| chart.bars.iter().any(|bar| bar.parts.iter().any(|(other, _)| other == what));
    let shown: Vec<Component> = Component::ALL.into_iter().filter(there).collect();
    if shown.len() < 2 {
        return Ok(());
    }
    let each = 180;
    let columns = (width as i32 / each).max(1);
    for (at, what) in shown.iter().enumerate() {
        let (x, y) = (12 + at as i32 % columns * each, 10 + at as i32 / columns * 20);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 12)], colour(*what).filled()))?;
        area.draw(&Text::new(what.name(), (x + 20, y), ("sans-serif", 13)))?;
    }
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    bars: &[&Bar],
    unit: &str,
    top: f64,
) -> Result<(), Failed> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(70)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.6..bars.len() as f64 - 0.4, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        // Prints 0.3, not its binary approximation.
        .y_label_formatter(&|value| format!("{}", (value * 1e6).round() / 1e6))
        .y_desc(unit)
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .draw()?;
    let width = PANEL.0 as usize / bars.len().max(1) / 8;
    for (at, bar) in bars.iter().enumerate() {
        let mut from = 0.0;
        for (what, part) in &bar.parts {
            let corners = [(at as f64 - 0.32, from), (at as f64 + 0.32, from + part)];
            chart.draw_series([Rectangle::new(corners, colour(*what).filled())])?;
            from += part;
        }
        let (x, y) = chart.backend_coord(&(at as f64 - 0.36, 0.0));
        let origin = area.get_pixel_range();
        let place = (x - origin.0.start, y - origin.1.start + 6);
        for (line, text) in wrapped(&bar.label, width.max(8)).iter().enumerate() {
            area.draw(&Text::new(text.clone(), (place.0, place.1 + line as i32 * 14), ("sans-serif", 12)))?;
        }
    }
    Ok(())
}

/// Splits a label into lines of about this many characters.
fn wrapped(label: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in label.split_inclusive([' ', '-']) {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= width => line.push_str(word),
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_every_part_of_every_bar_in_its_colour() {
        let parts = vec![(Component::Ssd, 80.0), (Component::Kernel, 20.0)];
        let bar = |panel: &str| Bar {
            panel: panel.into(),
            label: "host-centric, polling".into(),
            parts: parts.clone(),
        };
        let chart = Chart { unit: "us", bars: vec![bar("one"), bar("one"), bar("other")] };
        let svg = svg(&chart).unwrap();
        // Three bars and the legend.
        assert_eq!(svg.matches("#0072B2").count(), 4);
        assert_eq!(svg.matches("#D55E00").count(), 4);
    }

    #[test]
    fn labels_are_cut_at_words() {
        assert_eq!(wrapped("software-optimised, CPU", 12), ["software-", "optimised, ", "CPU"]);
    }
}
