//! Modules as operators: output of good ones, and failures of bad ones.

mod examples;
mod hostile;
mod streams;
mod texts;
