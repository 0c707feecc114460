//! What a driver's answer is worth: it is believed for the claims and devices it was asked about, and for nothing else. Pure.

use super::DraError;
use super::claim::Wanted;
use super::state::{Device, Name};
use proto::dra::v1::{NodePrepareResourceResponse, NodeUnprepareResourceResponse};
use std::collections::HashMap;

/// The most devices of one claim; the API allocates no more than 32.
const DEVICES_MAX: usize = 256;
/// The most names that go with one device.
const NAMES_MAX: usize = 256;
/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 1024;
/// What one driver's devices of one claim may take together, bytes: as much as a device plugin may answer for a container
/// ([`crate::device`]). They are kept for as long as the claim is, told in PodResources, and written with every change.
const CLAIM_BYTES_MAX: usize = 64 << 10;
/// What is kept of a driver's own words, bytes.
const ERROR_BYTES_MAX: usize = 2048;

const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";

/// What a driver gave for each claim.
///
/// # Errors
/// It failed at one, left one out, or gave what nobody asked for: then nothing of the answer is taken.
pub(super) fn prepared(
    driver: &str,
    asked: &[&Wanted],
    mut answer: HashMap<String, NodePrepareResourceResponse>,
) -> Result<Vec<(Name, Vec<Device>)>, DraError> {
    let claims: Vec<(&str, &str)> = asked.iter().map(|wanted| (&*wanted.uid, &*wanted.name)).collect();
    let told = answer.iter().map(|(uid, told)| (uid.as_str(), told.error.as_str()));
    judge(driver, PREPARE, &claims, &told.collect())?;
    let mut given = Vec::new();
    for wanted in asked {
        let devices = answer.remove(&wanted.uid).unwrap_or_default().devices;
        let wrong = |what: String| DraError::Answer {
            driver: driver.to_owned(),
            what: format!("{PREPARE} returned {what} for ResourceClaim {}", wanted.name),
        };
        if devices.len() > DEVICES_MAX {
            return Err(wrong(format!("{} devices, more than {DEVICES_MAX},", devices.len())));
        }
        let mut taken = Vec::new();
        let mut weight = 0;
        for device in devices {
            let place = (device.pool_name, device.device_name);
            if wanted
                .drivers
                .get(driver)
                .is_none_or(|allocated| !allocated.contains(&place))
            {
                let (pool, name) = (cut(&place.0), cut(&place.1));
                return Err(wrong(format!(
                    "device {name:?} of pool {pool:?}, which is not allocated,"
                )));
            }
            let of_device = |what: String| wrong(format!("{what} of device {:?}", cut(&place.1)));
            let fields = [
                ("share ID", "share IDs", device.share_id.as_slice()),
                ("request name", "request names", &device.request_names),
                ("CDI device ID", "CDI device IDs", &device.cdi_device_ids),
            ];
            for (one, many, names) in fields {
                bounded(one, many, names).map_err(of_device)?;
            }
            if let Some(id) = device.cdi_device_ids.iter().find(|id| !is_cdi(id)) {
                return Err(wrong(format!("the invalid CDI device ID {id:?}")));
            }
            let device = Device {
                pool_name: place.0,
                device_name: place.1,
                share_id: device.share_id,
                request_names: Some(device.request_names),
                cdi_device_ids: Some(device.cdi_device_ids),
            };
            weight += device.weight();
            if weight > CLAIM_BYTES_MAX {
                return Err(wrong(format!(
                    "devices whose names take more than {CLAIM_BYTES_MAX} bytes"
                )));
            }
            taken.push(device);
        }
        given.push(((wanted.namespace.clone(), wanted.name.clone()), taken));
    }
    Ok(given)
}

/// What is wrong with the number or the length of names.
fn bounded(one: &str, many: &str, names: &[String]) -> Result<(), String> {
    if names.len() > NAMES_MAX {
        return Err(format!("{} {many}, more than {NAMES_MAX},", names.len()));
    }
    match names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        Some(long) => Err(format!("a {one} of {} bytes, more than {NAME_BYTES_MAX},", long.len())),
        None => Ok(()),
    }
}

/// Whether a driver let go of claims, each UID and name.
///
/// # Errors
/// As [`prepared`].
pub(super) fn unprepared(
    driver: &str,
    asked: &[(&str, &str)],
    answer: &HashMap<String, NodeUnprepareResourceResponse>,
) -> Result<(), DraError> {
    let told = answer.iter().map(|(uid, told)| (uid.as_str(), told.error.as_str()));
    judge(driver, UNPREPARE, asked, &told.collect())
}

/// What is wrong with the answers as a whole: UIDs with errors, which are empty where it worked.
fn judge(driver: &str, call: &str, asked: &[(&str, &str)], told: &HashMap<&str, &str>) -> Result<(), DraError> {
    let wrong = |what: String| DraError::Answer {
        driver: driver.to_owned(),
        what: format!("{call} {what}"),
    };
    let strangers = told.keys().filter(|uid| asked.iter().all(|(known, _)| known != *uid));
    if let Some(stranger) = strangers.min() {
        return Err(wrong(format!(
            "returned result for unknown claim UID {}",
            cut(stranger)
        )));
    }
    let failed = |(uid, name): &(&str, &str)| {
        let error = told.get(uid).filter(|error| !error.is_empty())?;
        Some(wrong(format!("failed for ResourceClaim {name}: {}", cut(error))))
    };
    if let Some(error) = asked.iter().find_map(failed) {
        return Err(error);
    }
    let skipped: Vec<&str> = asked
        .iter()
        .filter(|(uid, _)| !told.contains_key(uid))
        .map(|(_, name)| *name)
        .collect();
    match skipped.is_empty() {
        true => Ok(()),
        false => Err(wrong(format!(
            "skipped {} ResourceClaims: {}",
            skipped.len(),
            skipped.join(", ")
        ))),
    }
}

/// As much of a text as is shown.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(ERROR_BYTES_MAX)]
}

/// Whether this is a device's name in the Container Device Interface: `vendor.com/class=name`. The runtime would refuse it otherwise, and
/// say less.
fn is_cdi(id: &str) -> bool {
    let Some((vendor, (class, name))) = id
        .split_once('/')
        .and_then(|(vendor, rest)| Some((vendor, rest.split_once('=')?)))
    else {
        return false;
    };
    let made_of = |text: &str, marks: &[char]| text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(&c));
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic());
    let ends = |text: &str| text.ends_with(|c: char| c.is_ascii_alphanumeric());
    let named = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && ends(name);
    begins(vendor)
        && ends(vendor)
        && made_of(vendor, &['_', '-', '.'])
        && begins(class)
        && ends(class)
        && made_of(class, &['_', '-', '.'])
        && named
        && made_of(name, &['_', '-', '.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::dra::v1 as pb;

    fn wanted(name: &str, uid: &str) -> Wanted {
        let place = ("pool".to_owned(), "dev".to_owned());
        Wanted {
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
            drivers: [("d".to_owned(), [place].into())].into(),
        }
    }

    fn device(pool: &str, name: &str, cdi: &str) -> pb::Device {
        pb::Device {
            pool_name: pool.into(),
            device_name: name.into(),
            cdi_device_ids: vec![cdi.into()],
            ..pb::Device::default()
        }
    }

    fn answer(error: &str, devices: Vec<pb::Device>) -> NodePrepareResourceResponse {
        NodePrepareResourceResponse {
            devices,
            error: error.into(),
        }
    }

    #[test]
    fn an_answer_is_taken_whole_or_not_at_all() {
        let good = || answer("", vec![device("pool", "dev", "v.com/c=1")]);
        let only = |devices| answer("", devices);
        let many = (0..=DEVICES_MAX).map(|_| device("pool", "dev", "v.com/c=1")).collect();
        let table: [(Vec<(&str, NodePrepareResourceResponse)>, &str); 9] = [
            (vec![("1", good()), ("2", good())], ""),
            (vec![("1", good()), ("2", only(vec![]))], ""),
            (
                vec![("1", good()), ("2", good()), ("3", good())],
                "NodePrepareResources returned result for unknown claim UID 3 (DRA driver d)",
            ),
            (
                vec![("1", good()), ("2", answer("no", vec![]))],
                "NodePrepareResources failed for ResourceClaim b: no (DRA driver d)",
            ),
            (
                vec![("1", good())],
                "NodePrepareResources skipped 1 ResourceClaims: b (DRA driver d)",
            ),
            (
                vec![("1", good()), ("2", only(vec![device("pool", "other", "v.com/c=1")]))],
                "NodePrepareResources returned device \"other\" of pool \"pool\", which is not allocated, for ResourceClaim b (DRA driver d)",
            ),
            (
                vec![("1", good()), ("2", only(vec![device("pool", "dev", "/dev/sda")]))],
                "NodePrepareResources returned the invalid CDI device ID \"/dev/sda\" for ResourceClaim b (DRA driver d)",
            ),
            (
                vec![("1", good()), ("2", only(many))],
                "NodePrepareResources returned 257 devices, more than 256, for ResourceClaim b (DRA driver d)",
            ),
            (
                vec![
                    ("1", good()),
                    ("2", only(vec![device("pool", "dev", &"x".repeat(2000))])),
                ],
                "NodePrepareResources returned a CDI device ID of 2000 bytes, more than 1024, of device \"dev\" for ResourceClaim b (DRA driver d)",
            ),
        ];
        let (a, b) = (wanted("a", "1"), wanted("b", "2"));
        for (answers, expected) in table {
            let answers = answers
                .into_iter()
                .map(|(uid, answer)| (uid.to_owned(), answer))
                .collect();
            let error = prepared("d", &[&a, &b], answers).err().map(|error| error.to_string());
            assert_eq!(error.unwrap_or_default(), expected);
        }
        let asked = [("1", "a")];
        assert_eq!(
            unprepared("d", &asked, &HashMap::new()).map_err(|error| error.to_string()),
            Err("NodeUnprepareResources skipped 1 ResourceClaims: a (DRA driver d)".to_owned())
        );
        let done = [("1".to_owned(), NodeUnprepareResourceResponse::default())].into();
        assert_eq!(unprepared("d", &asked, &done), Ok(()));
    }

    #[test]
    fn what_a_driver_gives_for_a_claim_is_bounded_in_number_and_bytes() {
        let of = |change: &dyn Fn(&mut pb::Device), devices: usize| {
            let mut one = device("pool", "dev", "v.com/c=1");
            change(&mut one);
            let answers = [("1".to_owned(), answer("", vec![one; devices]))];
            let told = prepared("d", &[&wanted("a", "1")], answers.into());
            told.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let long = |bytes| "x".repeat(bytes);
        let told = |what: &str| format!("NodePrepareResources returned {what} for ResourceClaim a (DRA driver d)");
        let of_device = |what: &str| told(&format!("{what} of device \"dev\""));
        let ids = |count, bytes| vec![format!("v.com/c={}", long(bytes)); count];
        assert_eq!(of(&|one| one.share_id = Some(long(NAME_BYTES_MAX)), 1), "");
        assert_eq!(
            of(&|one| one.share_id = Some(long(3 << 20)), 1),
            of_device("a share ID of 3145728 bytes, more than 1024,")
        );
        assert_eq!(
            of(&|one| one.request_names = vec![long(1025)], 1),
            of_device("a request name of 1025 bytes, more than 1024,")
        );
        assert_eq!(
            of(&|one| one.request_names = vec![String::new(); 257], 1),
            of_device("257 request names, more than 256,")
        );
        assert_eq!(
            of(&|one| one.cdi_device_ids = ids(257, 1), 1),
            of_device("257 CDI device IDs, more than 256,")
        );
        // Each name is short, and they are few; all of them are too much.
        let all = told("devices whose names take more than 65536 bytes");
        assert_eq!(of(&|one| one.cdi_device_ids = ids(60, 1000), 1), "");
        assert_eq!(of(&|one| one.cdi_device_ids = ids(66, 1000), 1), all);
        assert_eq!(of(&|one| one.cdi_device_ids = ids(1, 200), 256), all);
    }

    #[test]
    fn ids_of_devices_have_the_form_runtimes_know() {
        for (id, valid) in [
            ("vendor.com/gpu=0", true),
            ("k8s.gpu.nvidia.com/claim=6e1-gpu-0:1.2", true),
            ("vendor.com/gpu=", false),
            ("vendor.com/gpu", false),
            ("/gpu=0", false),
            ("vendor.com/=0", false),
            ("vendor.com/gpu=a/b", false),
            ("vendor.com/gpu=a b", false),
            ("1vendor/gpu=a", false),
        ] {
            assert_eq!(is_cdi(id), valid, "{id}");
        }
    }
}
