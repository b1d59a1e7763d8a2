//! The program `tenure`.
#![allow(dead_code)]
mod when;

fn main() {}
