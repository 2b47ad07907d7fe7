//! The results of an experiment.

use super::bars::Chart;
use dcs_sim::experiments::figure::Figure;

/// What an experiment shows: its table, objects of JSON, figures beside the papers', a plot.
pub struct Results {
    pub name: &'static str,
    pub title: &'static str,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub objects: Vec<serde_json::Value>,
    pub figures: Vec<Figure>,
    pub chart: Chart,
}
