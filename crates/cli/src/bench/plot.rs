//! The plot: CPU seconds per GiB by number of streams, a panel for each job, as SVG.

use super::contender::CONTENDERS;
use super::figures::Row;
use super::table::plural;
use crate::units::human;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Pixels of a panel.
const PANEL: (u32, u32) = (620, 380);
const COLUMNS: usize = 2;
/// Width of the legend, as a share of the curves'.
const LEGEND: f64 = 0.42;
/// Colours that the colour-blind can tell apart (Okabe and Ito), in the order of the contenders.
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(90, 90, 90),
];

type Failed = Box<dyn std::error::Error>;

pub fn draw(rows: &[Row], path: &Path) -> Result<(), Failed> {
    let mut panels: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let title = title(row);
        match panels.iter_mut().find(|(known, _)| *known == title) {
            Some((_, rows)) => rows.push(row),
            None => panels.push((title, vec![row])),
        }
    }
    let columns = COLUMNS.min(panels.len().max(1));
    let lines = panels.len().div_ceil(columns).max(1);
    let size = (PANEL.0 * columns as u32, PANEL.1 * lines as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, rows)) in root.split_evenly((lines, columns)).iter().zip(&panels) {
        panel(area, title, rows)?;
    }
    root.present()?;
    Ok(())
}

fn title(row: &Row) -> String {
    let hogs = if row.hogs > 0 { format!(", beside {}", plural(row.hogs, "hog")) } else { String::new() };
    let cold = if row.cold { ", cold" } else { "" };
    format!("{}, {}{hogs}{cold}", row.job, human(row.size))
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, rows: &[&Row]) -> Result<(), Failed> {
    let mut streams: Vec<usize> = rows.iter().map(|row| row.streams).collect();
    streams.sort_unstable();
    streams.dedup();
    let place = |count: usize| streams.iter().position(|known| *known == count).unwrap_or(0) as f64;
    let most = rows.iter().map(|row| row.cpu_s_per_gib).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.08 } else { 1.0 };
    // Room for the legend, beside the curves.
    let right = (streams.len() as f64 - 0.6) + LEGEND * (streams.len() as f64 - 0.2);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.4..right, 0.0..top)?;
    let label = |at: &f64| {
        let whole = (at - at.round()).abs() < 1e-6 && *at >= -0.1;
        let known = streams.get(at.round() as usize).filter(|_| whole);
        known.map_or(String::new(), ToString::to_string)
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(streams.len() * 3 + 3)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| format!("{value:.2}"))
        .x_desc("streams")
        .y_desc("CPU s per GiB")
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .draw()?;
    for ((_, name, _), colour) in CONTENDERS.iter().zip(COLOURS) {
        let mut points: Vec<(f64, f64)> = rows
            .iter()
            .filter(|row| row.contender == *name)
            .map(|row| (place(row.streams), row.cpu_s_per_gib))
            .collect();
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
