//! Tables for people: printer columns.
