//! Which audiences a node may have tokens made for: those its pod's volumes ask for, and those it is allowed by the verb
//! `request-serviceaccounts-token-audience` (`ServiceAccountNodeAudienceRestriction`, KEP-4412).

use super::Case;
use crate::apiserver::reader::Reader;
use crate::apiserver::request::RequestInfo;
use crate::apiserver::status::ApiError;
use crate::resource::field::{at, list, text};
use serde_json::Value;

/// The verb that allows an audience, which stands in the place of a resource.
const VERB: &str = "request-serviceaccounts-token-audience";
/// Drivers that stand for what volumes once named by themselves.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

impl Case<'_> {
    /// Refuses a token for an audience that nothing of the pod asks for and nobody allowed.
    pub(super) fn audience(&self, pod: &Value) -> Result<(), ApiError> {
        let asked = list(self.object, &["spec", "audiences"]);
        let audience = match asked {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return self.refuse("node may only request 0 or 1 audiences"),
        };
        match is_asked_for(pod, audience, self.reader) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return self.refuse(format!("error validating audience \"{audience}\": {why}")),
        }
        let info = RequestInfo {
            is_resource: true,
            verb: VERB.to_owned(),
            version: "v1".to_owned(),
            namespace: self.attributes.namespace.to_owned(),
            resource: audience.to_owned(),
            name: self.attributes.name.to_owned(),
            ..RequestInfo::default()
        };
        let user = self.attributes.user;
        if self.authz.authorize(user, &info, self.reader).allowed {
            return Ok(());
        }
        self.refuse(format!(
            "audience \"{audience}\" not found in pod spec volume, {} is not authorized to request tokens for this audience",
            user.name
        ))
    }
}

/// Whether some volume of the pod has tokens for the audience; what could not be looked up is told if no other has.
fn is_asked_for(pod: &Value, audience: &str, reader: &Reader) -> Result<bool, String> {
    let mut missing = Vec::new();
    for volume in list(pod, &["spec", "volumes"]) {
        let mut sources = list(volume, &["projected", "sources"]).iter();
        let of_token = |source: &Value| {
            let token = at(source, &["serviceAccountToken"]);
            token.is_object() && text(token, &["audience"]) == audience
        };
        if sources.any(of_token) {
            return Ok(true);
        }
        match has_driver_for(pod, volume, audience, reader) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(why) => missing.push(why),
        }
    }
    match missing.is_empty() {
        true => Ok(false),
        false => Err(missing.join(", ")),
    }
}

/// Whether the volume is of a driver that wants tokens for the audience.
fn has_driver_for(pod: &Value, volume: &Value, audience: &str, reader: &Reader) -> Result<bool, String> {
    let namespace = text(pod, &["metadata", "namespace"]);
    let driver = if at(volume, &["ephemeral", "volumeClaimTemplate"]).is_object() {
        let name = format!("{}-{}", text(pod, &["metadata", "name"]), text(volume, &["name"]));
        driver_of_claim(namespace, &name, reader)?
    } else if at(volume, &["persistentVolumeClaim"]).is_object() {
        driver_of_claim(namespace, text(volume, &["persistentVolumeClaim", "claimName"]), reader)?
    } else {
        driver_of(volume)
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let found = reader.get("storage.k8s.io", "csidrivers", "", &driver);
    let found = found.ok_or_else(|| format!("csidrivers.storage.k8s.io \"{driver}\" not found"))?;
    let requests = list(&found, &["spec", "tokenRequests"]);
    Ok(requests.iter().any(|request| text(request, &["audience"]) == audience))
}

/// The driver of a volume's source, of a pod or of a persistent volume; empty if it has none.
fn driver_of(source: &Value) -> String {
    let own = text(source, &["csi", "driver"]);
    if !own.is_empty() {
        return own.to_owned();
    }
    let migrated = MIGRATED.iter().find(|(field, _)| at(source, &[field]).is_object());
    migrated.map_or_else(String::new, |(_, driver)| (*driver).to_owned())
}

fn driver_of_claim(namespace: &str, name: &str, reader: &Reader) -> Result<String, String> {
    let claim = reader.get("", "persistentvolumeclaims", namespace, name);
    let claim = claim.ok_or_else(|| format!("persistentvolumeclaims \"{name}\" not found"))?;
    let name = text(&claim, &["spec", "volumeName"]);
    let volume = reader.get("", "persistentvolumes", "", name);
    let volume = volume.ok_or_else(|| format!("persistentvolumes \"{name}\" not found"))?;
    Ok(driver_of(at(&volume, &["spec"])))
}
