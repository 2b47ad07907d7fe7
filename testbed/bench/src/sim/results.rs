//! Results of an experiment.

use super::bars::Chart;
use dcs_sim::experiments::figure::Figure;

/// Results to show: a table, JSON objects, figures compared with the papers', a plot.
pub struct Results {
    pub name: &'static str,
    pub title: &'static str,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub objects: Vec<serde_json::Value>,
    pub figures: Vec<Figure>,
    pub chart: Chart,
}
