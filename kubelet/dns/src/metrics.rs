//! Counters under CoreDNS's names. Plain numbers, one addition each; text is made when somebody reads. Owns no series that strangers
//! can make: types and codes nobody knows are `other`, resolvers are the configured ones.

use crate::cache::Sort;
use crate::wire::{kind, rcode};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod histogram;

use histogram::Histogram;

/// CoreDNS's name of a server that listens on this port everywhere; ours in every series.
const SERVER: &str = "dns://:53";
/// Seconds: from 0.25 ms, each twice the one before.
const SECONDS: [f64; 16] = [
    0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192,
];
/// Bytes of messages.
const BYTES: [f64; 14] = [
    0., 100., 200., 300., 400., 511., 1023., 2047., 4095., 8291., 16e3, 32e3, 48e3, 64e3,
];
/// Types that have a series of their own.
const TYPES: [(u16, &str); 22] = [
    (kind::A, "A"),
    (kind::NS, "NS"),
    (kind::CNAME, "CNAME"),
    (kind::SOA, "SOA"),
    (kind::PTR, "PTR"),
    (kind::HINFO, "HINFO"),
    (kind::MX, "MX"),
    (kind::TXT, "TXT"),
    (kind::AAAA, "AAAA"),
    (kind::SRV, "SRV"),
    (35, "NAPTR"),
    (43, "DS"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (257, "CAA"),
    (kind::IXFR, "IXFR"),
    (kind::AXFR, "AXFR"),
    (kind::ANY, "ANY"),
];
/// Codes that have a series of their own.
const CODES: [(u16, &str); 7] = [
    (rcode::NO_ERROR, "NOERROR"),
    (rcode::FORM_ERR, "FORMERR"),
    (rcode::SERV_FAIL, "SERVFAIL"),
    (rcode::NX_DOMAIN, "NXDOMAIN"),
    (rcode::NOT_IMP, "NOTIMP"),
    (rcode::REFUSED, "REFUSED"),
    (rcode::BAD_VERS, "BADVERS"),
];
const PROTOCOLS: [&str; 2] = ["udp", "tcp"];
const FAMILIES: [&str; 2] = ["1", "2"];

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The index.
    Cluster = 0,
    /// A resolver, now or a while ago.
    Forward = 1,
}

/// CoreDNS's names of them.
const PLUGINS: [&str; 2] = ["kubernetes", "forward"];

/// How a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// By TCP.
    pub tcp: bool,
    /// By IPv6.
    pub v6: bool,
}

#[derive(Debug, Default)]
struct PerResolver {
    codes: [Histogram<16>; CODES.len() + 1],
    asked: u64,
}

/// The counters of one responder.
#[derive(Debug)]
pub struct Metrics {
    zone: Mutex<String>,
    requests: [[[[AtomicU64; TYPES.len() + 1]; 2]; 2]; 2],
    dnssec: [AtomicU64; 2],
    responses: [[AtomicU64; CODES.len() + 1]; 2],
    durations: [Histogram<16>; 2],
    request_bytes: [[Histogram<14>; 2]; 2],
    response_bytes: [[Histogram<14>; 2]; 2],
    cache_requests: AtomicU64,
    cache_hits: [AtomicU64; 2],
    cache_entries: [AtomicU64; 2],
    cache_evictions: AtomicU64,
    rejected: AtomicU64,
    limited: AtomicU64,
    completed: AtomicU64,
    panics: AtomicU64,
    resolvers: Mutex<Vec<(SocketAddr, PerResolver)>>,
}

fn counters<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

fn place(table: &[(u16, &str)], value: u16) -> usize {
    table
        .iter()
        .position(|(number, _)| *number == value)
        .unwrap_or(table.len())
}

fn label(table: &'static [(u16, &'static str)], place: usize) -> &'static str {
    table.get(place).map_or("other", |(_, name)| name)
}

impl Default for Metrics {
    fn default() -> Self {
        let by_family = || std::array::from_fn(|_| counters());
        let by_protocol = || std::array::from_fn(|_| by_family());
        Self {
            zone: Mutex::default(),
            requests: std::array::from_fn(|_| by_protocol()),
            dnssec: counters(),
            responses: std::array::from_fn(|_| counters()),
            durations: Default::default(),
            request_bytes: Default::default(),
            response_bytes: Default::default(),
            cache_requests: AtomicU64::default(),
            cache_hits: counters(),
            cache_entries: counters(),
            cache_evictions: AtomicU64::default(),
            rejected: AtomicU64::default(),
            limited: AtomicU64::default(),
            completed: AtomicU64::default(),
            panics: AtomicU64::default(),
            resolvers: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Says what the cluster's domain is called in the series.
    pub(crate) fn name_zone(&self, zone: &str) {
        zone.clone_into(&mut self.zone.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn request(&self, source: Source, way: Way, kind: u16, bytes: usize, dnssec_ok: bool) {
        let (zone, tcp) = (source as usize, usize::from(way.tcp));
        add(&self.requests[zone][tcp][usize::from(way.v6)][place(&TYPES, kind)]);
        self.request_bytes[zone][tcp].observe(&BYTES, bytes as f64);
        if dnssec_ok {
            add(&self.dnssec[zone]);
        }
    }

    pub(crate) fn response(&self, source: Source, way: Way, code: u16, bytes: usize, took: Duration) {
        let zone = source as usize;
        add(&self.responses[zone][place(&CODES, code)]);
        self.response_bytes[zone][usize::from(way.tcp)].observe(&BYTES, bytes as f64);
        self.durations[zone].observe(&SECONDS, took.as_secs_f64());
    }

    pub(crate) fn cache(&self, hit: Option<Sort>) {
        add(&self.cache_requests);
        if let Some(sort) = hit {
            add(&self.cache_hits[sort as usize]);
        }
    }

    pub(crate) fn cached(&self, success: usize, denial: usize, evicted: u64) {
        self.cache_entries[0].store(success as u64, Relaxed);
        self.cache_entries[1].store(denial as u64, Relaxed);
        self.cache_evictions.store(evicted, Relaxed);
    }

    pub(crate) fn reject(&self) {
        add(&self.rejected);
    }

    pub(crate) fn limit(&self) {
        add(&self.limited);
    }

    pub(crate) fn completed(&self) {
        add(&self.completed);
    }

    pub(crate) fn panic(&self) {
        add(&self.panics);
    }

    fn resolvers(&self) -> MutexGuard<'_, Vec<(SocketAddr, PerResolver)>> {
        self.resolvers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a question to a resolver, and what came of it.
    pub(crate) fn asked(&self, resolver: SocketAddr, code: Option<u16>, took: Duration) {
        let mut resolvers = self.resolvers();
        let at = resolvers.iter().position(|(there, _)| *there == resolver);
        let at = at.unwrap_or_else(|| {
            resolvers.push((resolver, PerResolver::default()));
            resolvers.len() - 1
        });
        let one = &mut resolvers[at].1;
        one.asked += 1;
        if let Some(code) = code {
            one.codes[place(&CODES, code)].observe(&SECONDS, took.as_secs_f64());
        }
    }

    /// Keeps the series of these resolvers alone.
    pub(crate) fn keep_resolvers(&self, wanted: impl Fn(&SocketAddr) -> bool) {
        self.resolvers().retain(|(resolver, _)| wanted(resolver));
    }

    /// Appends all of it in Prometheus' text format.
    pub fn render(&self, out: &mut String) {
        // Writing into a string cannot fail.
        let _ = self.write(out);
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let zone = self.zone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let zones = [zone.as_str(), "."];
        self.write_requests(out, zones)?;
        self.write_responses(out, zones)?;
        self.write_cache(out)?;
        self.write_forward(out)?;
        for (name, help, counter) in [
            (
                "coredns_panics_total",
                "A metrics that counts the number of panics.",
                &self.panics,
            ),
            (
                "skiff_dns_rate_limited_total",
                "Questions not answered because their source asked more than its share while others waited.",
                &self.limited,
            ),
        ] {
            head(out, name, "counter", help)?;
            writeln!(out, "{name} {}", counter.load(Relaxed))?;
        }
        let name = "coredns_autopath_success_total";
        head(out, name, "counter", "Counter of requests that did autopath.")?;
        writeln!(out, "{name}{{server=\"{SERVER}\"}} {}", self.completed.load(Relaxed))
    }

    fn write_requests(&self, out: &mut String, zones: [&str; 2]) -> std::fmt::Result {
        let name = "coredns_dns_requests_total";
        head(
            out,
            name,
            "counter",
            "Counter of DNS requests made per zone, protocol and family.",
        )?;
        for (by_zone, zone) in self.requests.iter().zip(zones) {
            for (by_protocol, protocol) in by_zone.iter().zip(PROTOCOLS) {
                for (by_family, family) in by_protocol.iter().zip(FAMILIES) {
                    for (at, counter) in by_family.iter().enumerate() {
                        let count = counter.load(Relaxed);
                        if count > 0 {
                            let kind = label(&TYPES, at);
                            writeln!(
                                out,
                                "{name}{{server=\"{SERVER}\",zone=\"{zone}\",view=\"\",proto=\"{protocol}\",family=\"{family}\",type=\"{kind}\"}} {count}"
                            )?;
                        }
                    }
                }
            }
        }
        let name = "coredns_dns_do_requests_total";
        head(
            out,
            name,
            "counter",
            "Counter of DNS requests with DO bit set per zone.",
        )?;
        for (counter, zone) in self.dnssec.iter().zip(zones) {
            let count = counter.load(Relaxed);
            writeln!(out, "{name}{{server=\"{SERVER}\",zone=\"{zone}\",view=\"\"}} {count}")?;
        }
        let name = "coredns_dns_request_size_bytes";
        write_sizes(
            out,
            name,
            "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.",
            &self.request_bytes,
            zones,
        )
    }

    fn write_responses(&self, out: &mut String, zones: [&str; 2]) -> std::fmt::Result {
        let name = "coredns_dns_responses_total";
        head(out, name, "counter", "Counter of response status codes.")?;
        for ((by_zone, zone), plugin) in self.responses.iter().zip(zones).zip(PLUGINS) {
            for (at, counter) in by_zone.iter().enumerate() {
                let count = counter.load(Relaxed);
                if count > 0 {
                    let code = label(&CODES, at);
                    writeln!(
                        out,
                        "{name}{{server=\"{SERVER}\",zone=\"{zone}\",view=\"\",rcode=\"{code}\",plugin=\"{plugin}\"}} {count}"
                    )?;
                }
            }
        }
        let name = "coredns_dns_response_size_bytes";
        write_sizes(
            out,
            name,
            "Size of the returned response in bytes.",
            &self.response_bytes,
            zones,
        )?;
        let name = "coredns_dns_request_duration_seconds";
        head(
            out,
            name,
            "histogram",
            "Histogram of the time (in seconds) each request took per zone.",
        )?;
        for (histogram, zone) in self.durations.iter().zip(zones) {
            let labels = format!("server=\"{SERVER}\",zone=\"{zone}\",view=\"\"");
            histogram.write(out, name, &labels, &SECONDS)?;
        }
        Ok(())
    }

    fn write_cache(&self, out: &mut String) -> std::fmt::Result {
        let common = format!("server=\"{SERVER}\",zones=\".\",view=\"\"");
        let by_sort = |out: &mut String, name: &str, counters: &[AtomicU64; 2]| {
            for (counter, sort) in counters.iter().zip(["success", "denial"]) {
                let count = counter.load(Relaxed);
                writeln!(out, "{name}{{type=\"{sort}\",{common}}} {count}")?;
            }
            Ok(())
        };
        head(
            out,
            "coredns_cache_entries",
            "gauge",
            "The number of elements in the cache.",
        )?;
        by_sort(out, "coredns_cache_entries", &self.cache_entries)?;
        head(out, "coredns_cache_hits_total", "counter", "The count of cache hits.")?;
        by_sort(out, "coredns_cache_hits_total", &self.cache_hits)?;
        let requests = self.cache_requests.load(Relaxed);
        let hits: u64 = self.cache_hits.iter().map(|counter| counter.load(Relaxed)).sum();
        for (name, help, count) in [
            ("coredns_cache_requests_total", "The count of cache requests.", requests),
            (
                "coredns_cache_misses_total",
                "The count of cache misses.",
                requests.saturating_sub(hits),
            ),
            (
                "coredns_cache_evictions_total",
                "The count of cache evictions.",
                self.cache_evictions.load(Relaxed),
            ),
        ] {
            head(out, name, "counter", help)?;
            writeln!(out, "{name}{{{common}}} {count}")?;
        }
        Ok(())
    }

    fn write_forward(&self, out: &mut String) -> std::fmt::Result {
        let resolvers = self.resolvers();
        let name = "coredns_forward_requests_total";
        head(out, name, "counter", "Counter of requests made per upstream.")?;
        for (to, one) in resolvers.iter() {
            writeln!(out, "{name}{{to=\"{to}\"}} {}", one.asked)?;
        }
        let by_code = |one: &PerResolver| {
            let codes = one
                .codes
                .iter()
                .enumerate()
                .filter(|(_, histogram)| histogram.count() > 0);
            codes.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let name = "coredns_forward_responses_total";
        head(out, name, "counter", "Counter of responses received per upstream.")?;
        for (to, one) in resolvers.iter() {
            for at in by_code(one) {
                let (code, count) = (label(&CODES, at), one.codes[at].count());
                writeln!(out, "{name}{{rcode=\"{code}\",to=\"{to}\"}} {count}")?;
            }
        }
        for (name, proxy) in [
            ("coredns_forward_request_duration_seconds", ""),
            ("coredns_proxy_request_duration_seconds", "proxy_name=\"forward\","),
        ] {
            head(out, name, "histogram", "Histogram of the time each request took.")?;
            for (to, one) in resolvers.iter() {
                for at in by_code(one) {
                    let labels = format!("{proxy}to=\"{to}\",rcode=\"{}\"", label(&CODES, at));
                    one.codes[at].write(out, name, &labels, &SECONDS)?;
                }
            }
        }
        let name = "coredns_forward_max_concurrent_rejects_total";
        head(
            out,
            name,
            "counter",
            "Counter of the number of queries rejected because the concurrent queries were at maximum.",
        )?;
        writeln!(out, "{name} {}", self.rejected.load(Relaxed))
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn write_sizes(
    out: &mut String,
    name: &str,
    help: &str,
    histograms: &[[Histogram<14>; 2]; 2],
    zones: [&str; 2],
) -> std::fmt::Result {
    head(out, name, "histogram", help)?;
    for (by_zone, zone) in histograms.iter().zip(zones) {
        for (histogram, protocol) in by_zone.iter().zip(PROTOCOLS) {
            let labels = format!("server=\"{SERVER}\",zone=\"{zone}\",view=\"\",proto=\"{protocol}\"");
            histogram.write(out, name, &labels, &BYTES)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
