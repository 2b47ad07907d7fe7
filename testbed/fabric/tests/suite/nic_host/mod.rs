//! The NIC driver on the fabric's NICs: the scenarios, on both families.

mod faults;
mod packets;
mod scenarios;
mod server;

use dcs_drivers::nic::Model;
use server::server;

const MODELS: [Model; 2] = [Model::E1000e, Model::Igb];

#[test]
fn frames_are_sent() {
    MODELS.into_iter().for_each(|model| scenarios::frames_are_sent(server(model)));
}

#[test]
fn many_frames_are_sent() {
    MODELS.into_iter().for_each(|model| scenarios::many_frames_are_sent(server(model)));
}

#[test]
fn checksums_are_inserted() {
    MODELS.into_iter().for_each(|model| scenarios::checksums_are_inserted(server(model)));
}

#[test]
fn segments_are_made() {
    MODELS.into_iter().for_each(|model| scenarios::segments_are_made(server(model)));
}

#[test]
fn frames_come() {
    MODELS.into_iter().for_each(|model| scenarios::frames_come(server(model)));
}

#[test]
fn frames_for_others_do_not_come() {
    MODELS.into_iter().for_each(|model| scenarios::frames_for_others_do_not_come(server(model)));
}

#[test]
fn many_frames_come() {
    MODELS.into_iter().for_each(|model| scenarios::many_frames_come(server(model)));
}

#[test]
fn long_frames_come_in_pieces() {
    MODELS.into_iter().for_each(|model| scenarios::long_frames_come_in_pieces(server(model)));
}

#[test]
fn headers_are_split() {
    MODELS.into_iter().for_each(|model| scenarios::headers_are_split(server(model)));
}

#[test]
fn the_link_comes_and_goes() {
    MODELS.into_iter().for_each(|model| scenarios::the_link_comes_and_goes(server(model)));
}

#[test]
fn resets_under_load() {
    MODELS.into_iter().for_each(|model| scenarios::resets_under_load(server(model)));
}

#[test]
fn random_frames_both_ways() {
    for seed in 0..4 {
        MODELS.into_iter().for_each(|model| scenarios::random_frames_both_ways(server(model), seed, 20));
    }
}
