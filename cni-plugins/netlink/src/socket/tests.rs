use super::*;
use crate::address;
use crate::cidr::Cidr;
use crate::monitor::{Heard, Monitor};
use crate::wire::{RTM_GETLINK, RTM_NEWLINK};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::RcvBuf;

#[test]
fn acknowledgements_and_refusals() {
    assert!(acknowledged(&0i32.to_ne_bytes()).is_ok());
    let error = acknowledged(&(-17i32).to_ne_bytes()).unwrap_err();
    assert!(error.is_exists());
    assert_eq!(error.to_string(), "file exists");
    assert!(acknowledged(&(-19i32).to_ne_bytes()).unwrap_err().is_missing());
}

/// A kernel that answers question after question with these datagrams of messages (type, flags, body), then no more.
fn scripted(answers: Vec<Vec<(u16, u16, Vec<u8>)>>) -> (Socket, std::thread::JoinHandle<usize>) {
    // A socket of packets takes an address it has no use for, as ours sends with one.
    let (own, kernel) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let socket = Socket {
        descriptor: own,
        sequence: 7,
        buffer: vec![0; RECEIVE_BYTES],
    };
    let thread = std::thread::spawn(move || {
        let mut asked = 0;
        let mut buffer = [0; 512];
        for answer in answers {
            let size = match recv(kernel.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) | Err(_) => break,
                Ok(size) => size,
            };
            asked += 1;
            let sequence = codec::messages(&buffer[..size]).next().unwrap().sequence;
            let messages = answer.into_iter();
            let bytes: Vec<u8> = messages
                .flat_map(|(kind, flags, body)| Message::new(kind, flags, &body).encode(sequence, 0))
                .collect();
            nix::sys::socket::send(kernel.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
        }
        asked
    });
    (socket, thread)
}

fn part(number: u8) -> (u16, u16, Vec<u8>) {
    (RTM_NEWLINK, NLM_F_MULTI, vec![number; 4])
}

fn done(flags: u16) -> (u16, u16, Vec<u8>) {
    (NLMSG_DONE, NLM_F_MULTI | flags, vec![0; 4])
}

fn refused(errno: i32) -> (u16, u16, Vec<u8>) {
    (NLMSG_ERROR, 0, (-errno).to_ne_bytes().to_vec())
}

#[test]
fn a_list_that_was_interrupted_is_asked_for_again() {
    let whole = vec![part(1), part(2), done(0)];
    let torn = vec![
        part(1),
        (RTM_NEWLINK, NLM_F_MULTI | NLM_F_DUMP_INTR, vec![9; 4]),
        done(0),
    ];
    let question = Message::new(RTM_GETLINK, 0, &[0; 16]);
    for (before, expected) in [
        (vec![], Some(1)),
        (vec![torn.clone()], Some(2)),
        (vec![vec![part(1), done(NLM_F_DUMP_INTR)]], Some(2)),
        (vec![vec![refused(libc::EINTR)], torn.clone()], Some(3)),
        (vec![torn.clone(); MAX_DUMP_ATTEMPTS - 1], Some(MAX_DUMP_ATTEMPTS)),
        (vec![torn.clone(); MAX_DUMP_ATTEMPTS], None),
    ] {
        let answers = [before, vec![whole.clone()]].concat();
        let (mut socket, kernel) = scripted(answers);
        let listed = socket.dump(&question);
        drop(socket);
        let asked = kernel.join().unwrap();
        match (listed, expected) {
            (Ok(replies), Some(expected)) => {
                // Nothing of what was torn is in it.
                let bodies: Vec<&[u8]> = replies.iter().map(|reply| reply.body.as_slice()).collect();
                assert_eq!(bodies, [[1; 4], [2; 4]]);
                assert_eq!(asked, expected);
            }
            (Err(Error::Interrupted), None) => assert_eq!(asked, MAX_DUMP_ATTEMPTS),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refused_list_is_not_asked_for_again() {
    let (mut socket, kernel) = scripted(vec![vec![refused(libc::EPERM)], vec![done(0)]]);
    let listed = socket.dump(&Message::new(RTM_GETLINK, 0, &[0; 16]));
    drop(socket);
    assert_eq!(listed.unwrap_err().errno(), Some(Errno::EPERM));
    assert_eq!(kernel.join().unwrap(), 1);
}

#[test]
fn answers_to_other_questions_are_not_taken_for_ones_own() {
    let (own, kernel) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let mut socket = Socket {
        descriptor: own,
        sequence: 7,
        buffer: vec![0; RECEIVE_BYTES],
    };
    // Late answers of before, and one to a question that was never asked, are there already.
    for (sequence, errno) in [(6, libc::EPERM), (9, libc::EPERM), (7, 0)] {
        let answer = Message::new(NLMSG_ERROR, 0, &(-errno).to_ne_bytes()).encode(sequence, 0);
        nix::sys::socket::send(kernel.as_raw_fd(), &answer, MsgFlags::empty()).unwrap();
    }
    assert!(socket.request(Message::new(RTM_GETLINK, 0, &[0; 16])).is_ok());
}

#[test]
fn news_the_kernel_could_not_keep_are_told_as_lost() {
    // In a namespace that ends with its thread.
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("root makes namespaces");
        let mut monitor = Monitor::open().unwrap();
        // The least room there is, whatever the machine's default: a few changes fill it.
        setsockopt(&monitor, RcvBuf, &1).unwrap();
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let changes = (0..=255).map(|last| address::add(1, Cidr::host([10, 9, 0, last].into()), false));
        let changes: Vec<Message> = changes.collect();
        changes.chunks(64).for_each(|some| socket.batch_all(some).unwrap());
        assert!(is_lost(&mut monitor), "256 changes fit into the least room");
        // It is told once, and what comes then is heard, where there is room for it.
        setsockopt(&monitor, RcvBuf, &(64 << 10)).unwrap();
        assert_eq!(monitor.take().unwrap(), Heard::Nothing);
        socket
            .request(address::add(1, Cidr::host([10, 8, 0, 1].into()), false))
            .unwrap();
        assert!(matches!(monitor.take().unwrap(), Heard::Changes(changes) if !changes.is_empty()));
    });
    thread.join().expect("the thread does not panic");
}

/// Takes all there is; whether something was lost.
fn is_lost(monitor: &mut Monitor) -> bool {
    let mut lost = false;
    loop {
        match monitor.take().unwrap() {
            Heard::Lost => lost = true,
            Heard::Changes(_) => {}
            Heard::Nothing => return lost,
        }
    }
}
