//! What the firewall's rules are, in both languages: nf_tables expressions and iptables arguments. Pure.
//!
//! The rules are those upstream's plugin makes with iptables, in the table iptables calls `filter`: that table's chains
//! decide whether the host forwards, and an administrator reads and orders them with iptables. So the nf_tables form uses
//! iptables' own matches; only a kernel without them gets the plain form.

use netlink::cidr::Cidr;
use netlink::nft::Place;
use netlink::nft::expression::{Compared, Comparison, Expression, MetaKey, Side, Verdict, address_in, comparisons};

use super::config::Ingress;

/// The chain with every container's rules.
pub const FORWARDING: &str = "CNI-FORWARD";
/// The built-in chain all forwarded packets pass.
pub const FORWARD: &str = "FORWARD";
/// What comes from an isolated bridge and leaves by another interface.
pub const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
/// Drops what would enter an isolated bridge.
pub const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";

/// What one family of a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// IPv4 or IPv6.
    pub v4: bool,
    /// Rules all containers share.
    pub shared: Vec<FilterRule>,
    /// Rules of one container.
    pub own: Vec<FilterRule>,
}

/// How conditions are put to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By iptables' matches, so that iptables shows them.
    Iptables,
    /// By nf_tables alone.
    Plain,
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Address(Side, Cidr),
    Input(String),
    Output(String),
    NotOutput(String),
    /// The packet belongs to a connection the other side may answer on.
    Answers,
    Comment(&'static str),
}

/// A rule of the filter table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Its chain.
    pub chain: String,
    /// Where in the chain.
    pub place: Place,
    steps: Vec<Step>,
    verdict: Verdict,
}

fn rule(chain: &str, place: Place, steps: Vec<Step>, verdict: Verdict) -> FilterRule {
    FilterRule {
        chain: chain.to_owned(),
        place,
        steps,
        verdict,
    }
}

fn jump(chain: &str) -> Verdict {
    Verdict::Jump(chain.to_owned())
}

/// The way from the built-in chain to the containers' rules, and the administrator's chain before them.
pub fn forwarding(admin_chain: &str) -> Vec<FilterRule> {
    let comment = |text| vec![Step::Comment(text)];
    vec![
        rule(
            FORWARD,
            Place::First,
            comment("CNI firewall plugin rules"),
            jump(FORWARDING),
        ),
        rule(
            FORWARDING,
            Place::First,
            comment("CNI firewall plugin admin overrides"),
            jump(admin_chain),
        ),
    ]
}

/// A container's rules for one of its addresses.
pub fn of_address(address: Cidr) -> [FilterRule; 2] {
    let answers = vec![Step::Address(Side::Destination, address), Step::Answers];
    let sends = vec![Step::Address(Side::Source, address)];
    [
        rule(FORWARDING, Place::Last, answers, Verdict::Accept),
        rule(FORWARDING, Place::Last, sends, Verdict::Accept),
    ]
}

/// The rules that keep bridges apart. They stay: other containers of the bridge may need them.
pub fn isolation(bridge: &str, ingress: Ingress) -> Vec<FilterRule> {
    let shared = || Step::Comment("CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)");
    let own = || match ingress {
        Ingress::Isolated => Step::Comment("CNI firewall plugin rules (ingressPolicy: isolated)"),
        _ => Step::Comment("CNI firewall plugin rules (ingressPolicy: same-bridge)"),
    };
    let arrives = || Step::Input(bridge.to_owned());
    let leaves = || Step::Output(bridge.to_owned());
    let from_bridge = vec![arrives(), Step::NotOutput(bridge.to_owned()), own()];
    let to_bridge = vec![leaves(), shared()];
    let mut rules = vec![
        rule(FORWARD, Place::First, vec![shared()], jump(STAGE_1)),
        rule(STAGE_1, Place::First, from_bridge, jump(STAGE_2)),
        rule(STAGE_1, Place::Last, vec![shared()], Verdict::Return),
        rule(STAGE_2, Place::First, to_bridge, Verdict::Drop),
        rule(STAGE_2, Place::Last, vec![shared()], Verdict::Return),
    ];
    if ingress == Ingress::Isolated {
        let within = vec![arrives(), leaves(), own()];
        rules.push(rule(STAGE_1, Place::First, within, Verdict::Drop));
    }
    rules
}

impl FilterRule {
    /// The rule for the kernel.
    pub fn expressions(&self, form: Form) -> Vec<Expression> {
        let mut expressions: Vec<Expression> = self.steps.iter().flat_map(|step| step.expressions(form)).collect();
        expressions.push(Expression::Counter);
        expressions.push(Expression::Verdict(self.verdict.clone()));
        expressions
    }

    /// Whether a listed rule, by its comparisons and the chains it leads to, is this one.
    pub fn is(&self, compared: &[Compared], targets: &[String]) -> bool {
        let leads_to: &[String] = match &self.verdict {
            Verdict::Jump(chain) | Verdict::Goto(chain) => std::slice::from_ref(chain),
            _ => &[],
        };
        targets == leads_to && compared == comparisons(&self.expressions(Form::Iptables))
    }

    /// Its chain, and the one it leads to.
    pub fn chains(&self) -> impl Iterator<Item = &str> {
        let target = match &self.verdict {
            Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain.as_str()),
            _ => None,
        };
        [self.chain.as_str()].into_iter().chain(target)
    }

    /// The rule as iptables prints it behind `-A CHAIN`.
    pub fn arguments(&self) -> String {
        let mut words: Vec<String> = self.steps.iter().map(Step::arguments).collect();
        words.push(match &self.verdict {
            Verdict::Accept => "-j ACCEPT".into(),
            Verdict::Drop => "-j DROP".into(),
            Verdict::Return => "-j RETURN".into(),
            Verdict::Jump(chain) => format!("-j {chain}"),
            Verdict::Goto(chain) => format!("-g {chain}"),
        });
        words.join(" ")
    }
}

impl Step {
    fn expressions(&self, form: Form) -> Vec<Expression> {
        match (self, form) {
            (Self::Address(side, network), _) => address_in(*side, Comparison::Equal, *network),
            (Self::Input(name), _) => named(MetaKey::InputName, Comparison::Equal, name),
            (Self::Output(name), _) => named(MetaKey::OutputName, Comparison::Equal, name),
            (Self::NotOutput(name), _) => named(MetaKey::OutputName, Comparison::NotEqual, name),
            (Self::Answers, Form::Iptables) => vec![Expression::Match {
                name: "conntrack",
                revision: 3,
                info: connection_info(),
            }],
            (Self::Answers, Form::Plain) => vec![
                Expression::ConnectionState,
                Expression::Mask {
                    mask: u32::from(ANSWERS).to_ne_bytes().to_vec(),
                    xor: vec![0; 4],
                },
                Expression::Compare(Comparison::NotEqual, vec![0; 4]),
            ],
            (Self::Comment(text), Form::Iptables) => vec![Expression::Match {
                name: "comment",
                revision: 0,
                info: comment_info(text),
            }],
            (Self::Comment(_), Form::Plain) => Vec::new(),
        }
    }

    fn arguments(&self) -> String {
        match self {
            Self::Address(Side::Source, network) => format!("-s {network}"),
            Self::Address(Side::Destination, network) => format!("-d {network}"),
            Self::Input(name) => format!("-i {name}"),
            Self::Output(name) => format!("-o {name}"),
            Self::NotOutput(name) => format!("! -o {name}"),
            Self::Answers => "-m conntrack --ctstate RELATED,ESTABLISHED".into(),
            Self::Comment(text) => format!("-m comment --comment \"{text}\""),
        }
    }
}

/// An interface's name, compared with its closing NUL: the whole name, as iptables writes it.
fn named(key: MetaKey, comparison: Comparison, name: &str) -> Vec<Expression> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    vec![Expression::Meta(key), Expression::Compare(comparison, bytes)]
}

/// The state bits ESTABLISHED (1 << 1) and RELATED (1 << 2) of `xt_conntrack`, the same as nf_tables'.
const ANSWERS: u16 = 0b110;

/// `struct xt_conntrack_mtinfo3`, padded to a multiple of eight: only the state is looked at.
fn connection_info() -> Vec<u8> {
    const BYTES: usize = 168;
    /// Eight addresses and masks, two expiry times, the protocol, and four ports lie before the flags.
    const FLAGS_AT: usize = 8 * 16 + 2 * 4 + 2 + 4 * 2;
    const STATES_AT: usize = FLAGS_AT + 4;
    /// `XT_CONNTRACK_STATE`.
    const LOOKS_AT_STATE: u16 = 1;
    let mut info = vec![0; BYTES];
    info[FLAGS_AT..FLAGS_AT + 2].copy_from_slice(&LOOKS_AT_STATE.to_ne_bytes());
    info[STATES_AT..STATES_AT + 2].copy_from_slice(&ANSWERS.to_ne_bytes());
    info
}

/// `struct xt_comment_info`.
fn comment_info(text: &str) -> Vec<u8> {
    let mut info = text.as_bytes().to_vec();
    info.resize(256, 0);
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_as_iptables_prints_them() {
        let [answers, sends] = of_address(Cidr::parse("10.0.0.2/32").unwrap());
        assert_eq!(
            answers.arguments(),
            "-d 10.0.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        );
        assert_eq!(sends.arguments(), "-s 10.0.0.2/32 -j ACCEPT");
        let rules = isolation("br0", Ingress::SameBridge);
        let comment =
            |policy: &str| format!("-m comment --comment \"CNI firewall plugin rules (ingressPolicy: {policy})\"");
        assert_eq!(
            rules[1].arguments(),
            format!("-i br0 ! -o br0 {} -j CNI-ISOLATION-STAGE-2", comment("same-bridge"))
        );
        assert_eq!(
            rules[3].arguments(),
            format!("-o br0 {} -j DROP", comment("same-bridge|isolated"))
        );
        assert_eq!(
            isolation("br0", Ingress::Isolated)[5].arguments(),
            format!("-i br0 -o br0 {} -j DROP", comment("isolated"))
        );
    }

    #[test]
    fn a_rule_knows_itself_and_no_other() {
        let mut rules = forwarding("CNI-ADMIN");
        rules.extend(of_address(Cidr::parse("10.0.0.2/32").unwrap()));
        rules.extend(of_address(Cidr::parse("10.0.0.3/32").unwrap()));
        rules.extend(isolation("br0", Ingress::SameBridge));
        rules.extend(isolation("br1", Ingress::SameBridge).drain(1..2));
        for one in &rules {
            let listed = comparisons(&one.expressions(Form::Plain));
            let targets: Vec<String> = match &one.verdict {
                Verdict::Jump(chain) => vec![chain.clone()],
                _ => Vec::new(),
            };
            for other in rules.iter().filter(|other| other.chain == one.chain) {
                assert_eq!(other.is(&listed, &targets), one == other, "{one:?} {other:?}");
            }
        }
    }
}
