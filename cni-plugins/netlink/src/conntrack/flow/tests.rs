use super::*;
use crate::wire::NLM_F_CREATE;
use nix::sched::{CloneFlags, unshare};

const UDP: u8 = 17;
const TCP: u8 = 6;
const IPCTNL_MSG_CT_NEW: u16 = 0;
const CTA_TIMEOUT: u16 = 7;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn tuple(protocol: u8, from: SocketAddr, to: SocketAddr) -> Attributes {
    let (source, target) = match from.is_ipv4() {
        true => (CTA_IP_V4_SRC, CTA_IP_V4_DST),
        false => (CTA_IP_V6_SRC, CTA_IP_V6_DST),
    };
    let ip = Attributes::new()
        .attr(source, &cidr::octets(&from.ip()))
        .attr(target, &cidr::octets(&to.ip()));
    let ports = Attributes::new()
        .attr(CTA_PROTO_NUM, &[protocol])
        .attr(CTA_PROTO_SRC_PORT, &from.port().to_be_bytes())
        .attr(CTA_PROTO_DST_PORT, &to.port().to_be_bytes());
    Attributes::new()
        .nested(CTA_TUPLE_IP, ip)
        .nested(CTA_TUPLE_PROTO, ports)
}

/// A connection of `client` to `target` that `endpoint` answers.
fn entry(protocol: u8, client: SocketAddr, target: SocketAddr, endpoint: SocketAddr) -> Message {
    let family = if client.is_ipv4() { AF_INET } else { AF_INET6 };
    let kind = (NFNL_SUBSYS_CTNETLINK << 8) | IPCTNL_MSG_CT_NEW;
    Message::new(kind, NLM_F_CREATE, &[family, 0, 0, 0])
        .nested(CTA_TUPLE_ORIG, tuple(protocol, client, target))
        .nested(CTA_TUPLE_REPLY, tuple(protocol, endpoint, client))
        .attr(CTA_TIMEOUT, &600u32.to_be_bytes())
}

fn filter(port: Option<u16>, address: Option<&str>) -> FlowFilter {
    FlowFilter {
        v4: true,
        protocol: UDP,
        port,
        address: address.map(|address| address.parse().unwrap()),
    }
}

#[test]
fn flows_are_read_of_their_protocol_alone() {
    for (protocol, client, target, endpoint) in [
        (UDP, "10.0.0.1:999", "10.96.0.10:53", "10.1.0.5:5353"),
        (UDP, "[fd00::1]:999", "[fd00::10]:53", "[fd00::10]:53"),
    ] {
        let bytes = entry(protocol, at(client), at(target), at(endpoint)).encode(0, 0);
        let flow = Flow::read(&bytes[16..], UDP).expect(target);
        assert_eq!((flow.target, flow.reply_source), (at(target), at(endpoint)));
        assert_eq!(flow.is_translated(), target != endpoint);
        assert_eq!(Flow::read(&bytes[16..], TCP), None);
        for cut in 0..bytes.len() - 16 {
            let _ = Flow::read(&bytes[16..16 + cut], UDP);
        }
    }
    assert_eq!(Flow::read(&[2], UDP), None);
}

/// The connections of a namespace that ends with its thread.
fn in_namespace<T: Send>(work: impl FnOnce(&mut Socket) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root makes namespaces");
            work(&mut Socket::open(Protocol::Netfilter).unwrap())
        });
        thread.join().expect("the work does not panic")
    })
}

fn flows(socket: &mut Socket, v4: bool) -> Vec<SocketAddr> {
    let all = FlowFilter {
        v4,
        ..filter(None, None)
    };
    let mut found = Vec::new();
    socket
        .visit(&all.list(), &mut |_, body| {
            found.extend(Flow::read(body, UDP).map(|flow| flow.reply_source));
        })
        .unwrap();
    found.sort_unstable();
    found
}

#[test]
fn what_is_stale_is_forgotten_and_nothing_else() {
    let (service, other) = (at("10.96.0.10:53"), at("10.96.0.11:53"));
    let (gone, kept) = (at("10.1.0.5:5353"), at("10.1.0.6:5353"));
    in_namespace(|socket| {
        let client = |number: u16| SocketAddr::new("10.0.0.1".parse().unwrap(), 2000 + number);
        let made: Vec<Message> = (0..200)
            .map(|number| entry(UDP, client(number), service, gone))
            .chain([
                entry(UDP, client(500), service, kept),
                entry(UDP, client(501), other, gone),
                entry(TCP, client(502), service, gone),
                entry(UDP, at("[fd00::1]:9"), at("[fd00::10]:53"), at("[fd00::5]:5353")),
            ])
            .collect();
        socket.batch_all(&made).unwrap();
        assert_eq!(flows(socket, true).len(), 202);
        let stale = |flow: &Flow| flow.target == service && flow.reply_source == gone;
        // The kernel's filter lets none of these through.
        for filter in [filter(Some(54), None), filter(Some(53), Some("10.96.0.12"))] {
            assert_eq!(delete_stale(&filter, &|_| true).unwrap(), 0, "{filter:?}");
        }
        let exact = filter(Some(53), Some("10.96.0.10"));
        assert_eq!(delete_stale(&exact, &stale).unwrap(), 200);
        assert_eq!(
            flows(socket, true),
            [gone, kept],
            "the other service's, and the other endpoint's"
        );
        assert_eq!(flows(socket, false).len(), 1, "IPv6's is another table");
        assert_eq!(delete_stale(&filter(None, None), &|_| true).unwrap(), 2);
        let v6 = FlowFilter {
            v4: false,
            ..filter(Some(53), None)
        };
        assert_eq!(delete_stale(&v6, &|_| true).unwrap(), 1);
        assert_eq!((flows(socket, true), flows(socket, false)), (vec![], vec![]));
    });
}
