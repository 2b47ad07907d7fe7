//! Modules as operators: what comes out of good ones, and what becomes of bad ones.

mod examples;
mod hostile;
mod streams;
mod texts;
