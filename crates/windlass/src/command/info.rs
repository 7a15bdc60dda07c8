//! `windlass info`: describes a set, or what is left of a damaged one.

mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use windlass_engine::media::{FileEntry, FileKind, SetDescription, SetId, fitted};
use windlass_engine::{
    DamagedPart, EngineError, Files, FoundSet, METADATA_LIMIT_DEFAULT, OpenStripe, PARTIAL_SUFFIX,
    StripeGlance, Survey, glance, to_json,
};
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{KIND, RelationNames};

use crate::cli::{Global, Info};
use crate::denied;
use crate::exit::{Code, Failure};
use crate::images::AsCluster;
use crate::output;
use crate::places::{self, Named};
use crate::requests;
use crate::words::moment_of;
use windlass_engine::show_size;

pub fn run(global: &Global, arguments: &Info) -> Result<Code, Failure> {
    let caller = requests::quiet_caller(global);
    let request = requests::sets(global, &arguments.set, &arguments.choice);
    let named = Named::new(&request)?;
    if named.choice.which.is_some() {
        let found = places::find_named(&caller, &named)?;
        return stripes(global, arguments, &found.stripes);
    }
    if named.are_directories() {
        return list::run((global, &caller), arguments, &named);
    }
    let mut named_stripes = named.paths.iter().filter(|path| !path.is_dir());
    named_stripes.try_for_each(|stripe| places::check_unchosen(stripe, &named.choice))?;
    stripes(global, arguments, &named.paths)
}

/// Shows the sets to which these words lead.
fn stripes(global: &Global, arguments: &Info, words: &[PathBuf]) -> Result<Code, Failure> {
    let glances = glance(&Files, words, METADATA_LIMIT_DEFAULT)?;
    let (unfinished, glances): (Vec<_>, Vec<_>) = glances
        .into_iter()
        .partition(|one| is_unfinished(one, words));
    let mut sets: BTreeMap<SetId, Vec<StripeGlance>> = BTreeMap::new();
    for glance in glances {
        sets.entry(glance.header.set_id).or_default().push(glance);
    }
    if sets.is_empty() {
        // The reason why there is no set says more than the fact that there is none.
        places::open_stripes(words)?;
    }
    let mut code = Code::Done;
    let mut documents = Vec::new();
    for (id, stripes) in &sets {
        let view = SetView::new(*id, stripes);
        code = view.worse_than(code);
        documents.push(view.json(arguments.files));
        if !global.json {
            view.print(arguments.files);
        }
    }
    let unfinished = unfinished
        .iter()
        .map(|one| one.location.display().to_string());
    if global.json {
        let unfinished: Vec<_> = unfinished.collect();
        let document = serde_json::json!({ "sets": documents, "unfinished": unfinished });
        output::line(&document.to_string());
    } else {
        unfinished.for_each(|place| {
            output::line(&format!(
                "unfinished    {place}  of a backup under way, or cut off"
            ));
        });
    }
    Ok(code)
}

/// The worse of a code and that of a fault. If this user may not read a set, that is no damage.
fn worse(code: Code, fault: &EngineError) -> Code {
    match fault.is_denied() {
        true if code != Code::Damage => Code::Failed,
        _ => Code::Damage,
    }
}

/// An unsealed stripe in a directory is neither a set nor a damaged one: no backup has sealed it
/// yet.
fn is_unfinished(stripe: &StripeGlance, named: &[PathBuf]) -> bool {
    let partial = stripe.location.to_string_lossy().ends_with(PARTIAL_SUFFIX);
    let unsealed = matches!(stripe.fault, Some(EngineError::NotSealed { .. }));
    partial && unsealed && !named.contains(&stripe.location)
}

/// One set, as far as it can be read.
struct SetView {
    id: SetId,
    stripe_count: u16,
    stripes: Vec<StripeView>,
    description: Option<SetDescription>,
    /// Why the set cannot be restored; `None` if it can.
    fault: Option<EngineError>,
}

/// One stripe, wherever it was found.
struct StripeView {
    /// Counted from 0.
    index: u16,
    location: PathBuf,
    is_there: bool,
    fault: Option<String>,
}

impl SetView {
    /// The set of these stripes, together with its stripes in other places. It makes all checks
    /// that `info` has time for: seals, footers, sibling stripes.
    fn new(id: SetId, stripes: &[StripeGlance]) -> Self {
        let places: Vec<_> = stripes.iter().map(|one| one.location.clone()).collect();
        let fault = match FoundSet::whole(&Files, &places, METADATA_LIMIT_DEFAULT) {
            Ok(set) => return Self::whole(&set),
            Err(fault) => fault,
        };
        let surveyed = Survey::of_any(&Files, &places, METADATA_LIMIT_DEFAULT);
        let view = match &surveyed {
            Ok(survey) => Self::surveyed(survey, stripes),
            // There are two copies of a stripe: show what is there, and trust neither copy.
            Err(_) => Self::glanced(id, stripes),
        };
        Self {
            fault: Some(fault),
            ..view
        }
    }

    /// The worse of a code and that of this set.
    fn worse_than(&self, code: Code) -> Code {
        self.fault.as_ref().map_or(code, |fault| worse(code, fault))
    }

    fn whole(set: &FoundSet) -> Self {
        let view = |stripe: &OpenStripe| StripeView {
            index: stripe.header().stripe.0,
            location: stripe.location().to_owned(),
            is_there: true,
            fault: None,
        };
        Self {
            id: set.set_id(),
            stripe_count: fitted(set.stripes().len()),
            stripes: set.stripes().iter().map(view).collect(),
            description: Some(set.description().clone()),
            fault: None,
        }
    }

    fn surveyed(survey: &Survey, glances: &[StripeGlance]) -> Self {
        let set = survey.set();
        let count = glances.first().map_or(0, |one| one.header.stripe_count());
        let view = |index: u16| {
            let opened = set
                .stripes()
                .iter()
                .find(|one| one.header().stripe.0 == index);
            let damage: Vec<_> = survey
                .found()
                .iter()
                .filter(|damage| damage.stripe == index + 1)
                .collect();
            let listed = damage.first().map(|damage| PathBuf::from(&damage.location));
            let words = damage.iter().map(|damage| damage.fault.as_str());
            StripeView {
                index,
                location: opened
                    .map(|one| one.location().to_owned())
                    .or(listed)
                    .unwrap_or_default(),
                is_there: damage
                    .iter()
                    .all(|damage| damage.part != DamagedPart::Stripe),
                fault: (!damage.is_empty()).then(|| words.collect::<Vec<_>>().join("; ")),
            }
        };
        Self {
            id: set.set_id(),
            stripe_count: count,
            stripes: (0..count).map(view).collect(),
            description: survey.files_known().then(|| set.description().clone()),
            fault: None,
        }
    }

    fn glanced(id: SetId, glances: &[StripeGlance]) -> Self {
        let view = |one: &StripeGlance| StripeView {
            index: one.header.stripe.0,
            location: one.location.clone(),
            is_there: true,
            fault: one.fault.as_ref().map(ToString::to_string),
        };
        let description = glances.iter().find_map(|one| one.description.clone());
        Self {
            id,
            stripe_count: glances.first().map_or(0, |one| one.header.stripe_count()),
            stripes: glances.iter().map(view).collect(),
            description,
            fault: None,
        }
    }

    fn print(&self, files: bool) {
        output::line(&format!("set           {}", self.id));
        if let Some(description) = &self.description {
            print_description(description, self.stored_bytes());
        }
        for stripe in &self.stripes {
            let state = match &stripe.fault {
                None => "sealed".to_owned(),
                Some(_) if !stripe.is_there => "missing".to_owned(),
                Some(fault) => format!("damaged: {fault}"),
            };
            let (index, count) = (stripe.index + 1, self.stripe_count);
            let place = stripe.location.display();
            output::line(&format!(
                "stripe        {index} of {count}  {place}  {state}"
            ));
        }
        match &self.fault {
            None => output::line("state         restorable, as far as seals and footers tell"),
            Some(fault) => self.print_damage(fault),
        }
        if files && let Some(description) = &self.description {
            print_files(description, &self.names());
        }
        output::line("");
    }

    /// The names of a PostgreSQL cluster's relations; none if they cannot be read.
    fn names(&self) -> RelationNames {
        let kind = self.description.as_ref();
        let kind = kind.map(|found| &found.facts.database["kind"]);
        if self.fault.is_some() || kind.and_then(|kind| kind.as_str()) != Some(KIND) {
            return RelationNames::default();
        }
        let places: Vec<_> = self
            .stripes
            .iter()
            .map(|one| one.location.clone())
            .collect();
        let options = SetImageOptions::default();
        let image = places::open_stripes(&places)
            .and_then(|set| Ok(SetImage::open(Arc::new(set), &options)?));
        match image {
            Ok(image) => RelationNames::read(&AsCluster(&image)),
            // The list itself is still useful without the names.
            Err(_) => RelationNames::default(),
        }
    }

    fn print_damage(&self, fault: &EngineError) {
        if let Some((message, hint)) = denied::words(fault) {
            output::line(&format!("state         not readable: {message}. {hint}"));
            return;
        }
        output::line(&format!("state         cannot be restored: {fault}"));
        let sound = self.stripes.iter().filter(|stripe| stripe.fault.is_none());
        // Copies of a stripe are one stripe.
        let sound = sound.map(|stripe| stripe.index).collect::<BTreeSet<_>>();
        let sound = sound.len();
        let stripes = output::count(self.stripe_count.into(), "stripe");
        let are = if self.stripe_count == 1 { "is" } else { "are" };
        let described = if self.description.is_some() {
            "is"
        } else {
            "is not"
        };
        output::line(&format!(
            "recoverable   {sound} of {stripes} {are} sound; the file list {described} \
             readable; `windlass verify` says what is lost"
        ));
    }

    /// Bytes of the stripes that are there. Copies of a stripe count once.
    fn stored_bytes(&self) -> u64 {
        let mut lengths: BTreeMap<u16, u64> = BTreeMap::new();
        for stripe in self.stripes.iter().filter(|stripe| stripe.is_there) {
            let bytes = stripe.location.metadata().map_or(0, |file| file.len());
            let length = lengths.entry(stripe.index).or_default();
            *length = bytes.max(*length);
        }
        lengths.into_values().sum()
    }

    fn json(&self, files: bool) -> Value {
        let stripes: Vec<_> = self.stripes.iter().map(stripe_json).collect();
        let mut document = serde_json::json!({
            "set_id": self.id.to_string(),
            "restorable": self.fault.is_none(),
            "fault": self.fault.as_ref().map(ToString::to_string),
            "stripe_count": self.stripe_count,
            "stripes": stripes,
        });
        if let Some(description) = &self.description {
            document["facts"] = to_json(&description.facts);
            let entries = &description.files.0;
            document["file_count"] = entries.len().into();
            document["file_bytes"] = entries.iter().map(|file| file.bytes).sum::<u64>().into();
            if files {
                let names = self.names();
                let file = |entry| file_json(entry, &names);
                document["files"] = entries.iter().map(file).collect();
            }
        }
        document
    }
}

/// The relation of a file, named as diff and extract name it.
fn relation_of(names: &RelationNames, file: &FileEntry) -> Option<String> {
    Some(names.of_path(&file.path)?.relation.to_string())
}

/// Prints what a set says about itself. `stored` are the bytes of its stripes, as in the list.
fn print_description(description: &SetDescription, stored: u64) {
    let facts = &description.facts;
    let kind = facts.database["kind"].as_str().unwrap_or("unknown");
    let version = facts.database["version"]
        .as_str()
        .or_else(|| facts.database["sqlite_version"].as_str())
        .unwrap_or_default();
    output::line(&format!("database      {kind} {version}"));
    output::line(&format!(
        "type          {}",
        format!("{:?}", facts.backup_type).to_lowercase()
    ));
    output::line(&format!("began         {}", moment_of(&facts.started)));
    output::line(&format!("finished      {}", moment_of(&facts.finished)));
    output::line(&format!("written by    {}", facts.tool));
    let files = description
        .files
        .0
        .iter()
        .filter(|file| file.kind == FileKind::File);
    let bytes: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    output::line(&format!(
        "content       {}, {}, stored in {}",
        output::count(files.count() as u64, "file"),
        show_size(bytes),
        show_size(stored)
    ));
    print_options(&facts.options);
    for (key, value) in facts.database.as_object().into_iter().flatten() {
        if !["kind", "version"].contains(&key.as_str()) && !value.is_null() {
            output::line(&format!("  {key:<22} {}", words(value)));
        }
    }
}

/// A fact, in words for people.
fn words(value: &Value) -> String {
    let joined = |parts: Vec<String>, between: &str| match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(between),
    };
    match value {
        // A fact is one line. A line break in it is shown as in JSON, like other characters that
        // could control a terminal.
        Value::String(text) => text.replace('\n', "\\u000a"),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(items) => joined(items.iter().map(words).collect(), "; "),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key} {}", words(value));
            joined(fields.iter().map(field).collect(), ", ")
        }
        other => other.to_string(),
    }
}

/// Prints the layout of the set, as far as the set says it.
fn print_options(options: &Value) {
    let size = |key: &str| options[key].as_u64().map(show_size);
    let parts = [
        options["compress"].as_str().map(str::to_owned),
        size("frame_bytes").map(|size| format!("frames of {size}")),
        size("transfer_bytes").map(|size| format!("transfers of {size}")),
        options["block_bytes"]
            .as_u64()
            .map(|bytes| format!("blocks of {bytes}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        output::line(&format!("written with  {}", parts.join(", ")));
    }
}

fn print_files(description: &SetDescription, names: &RelationNames) {
    for file in &description.files.0 {
        let kind = match file.kind {
            FileKind::File => '-',
            FileKind::Directory => 'd',
            FileKind::Symlink => 'l',
        };
        output::line(&format!(
            "{kind} {:04o} {:>14} {}{}",
            file.permissions(),
            file.bytes,
            file.path_lossy(),
            relation_of(names, file).map_or(String::new(), |name| format!("  {name}"))
        ));
    }
}

fn stripe_json(stripe: &StripeView) -> Value {
    serde_json::json!({
        "index": stripe.index,
        "location": stripe.location.to_string_lossy(),
        "fault": stripe.fault,
    })
}

fn file_json(file: &FileEntry, names: &RelationNames) -> Value {
    serde_json::json!({
        "path": file.path_lossy(),
        "bytes": file.bytes,
        "mode": format!("{:04o}", file.permissions()),
        "relation": relation_of(names, file),
        "crc32c": file.flags.crc_known.then(|| format!("{:08x}", file.crc32c)),
    })
}
