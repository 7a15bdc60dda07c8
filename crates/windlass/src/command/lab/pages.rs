//! `windlass lab pages`: what each large relation, or a SQLite database, takes with its pages taken
//! apart and as they are.

use windlass_engine::{show_rate, show_size};
use windlass_lab::{PageWay, Spent, to_f64};
use windlass_operations::paging::{PagesRequest, TriedRelation, try_relations};

use crate::cli::{Global, Pages};
use crate::exit::{Code, Failure};
use crate::output;
use crate::requests;
use crate::signals;

/// As wide as the rows.
const HEAD: &str = "relation                        bytes  codec      as it is            \
     taken apart            better";

pub fn run(global: &Global, arguments: &Pages) -> Result<Code, Failure> {
    let cancel = signals::cancel_on_signals()?;
    let request = PagesRequest {
        database: arguments.database.clone(),
        relations: arguments.relations.into(),
    };
    let tried = try_relations(&requests::quiet_caller(global), &request, &cancel)?;
    if global.json {
        let relations: Vec<_> = tried.iter().map(document).collect();
        let document = serde_json::json!({ "relations": relations });
        output::line(&document.to_string());
        return Ok(Code::Done);
    }
    if tried.is_empty() {
        output::line("nothing has pages that can be taken apart");
        return Ok(Code::Done);
    }
    output::line(HEAD);
    for one in &tried {
        show(one);
    }
    Ok(Code::Done)
}

fn document(one: &TriedRelation) -> serde_json::Value {
    serde_json::json!({
        "name": one.name,
        "path": one.path,
        "bytes": one.bytes,
        "sample_bytes": one.trial.raw_bytes,
        "ways": one.trial.ways,
    })
}

fn show(one: &TriedRelation) {
    let raw = one.trial.raw_bytes;
    for (index, way) in one.trial.ways.iter().enumerate() {
        let (name, bytes) = match index {
            0 => (one.name.as_str(), show_size(one.bytes)),
            _ => ("", String::new()),
        };
        output::line(&format!(
            "{name:<26} {bytes:>10}  {:<8} {}  {}  {}",
            way.codec.to_string(),
            spent(raw, way.plain),
            spent(raw, way.apart),
            better(way, raw),
        ));
    }
}

/// Ratio, and speed on one core.
fn spent(raw: u64, spent: Spent) -> String {
    let ratio = to_f64(raw) / to_f64(spent.stored_bytes.max(1));
    let rate = to_f64(raw) / spent.seconds.max(1e-9);
    format!("{ratio:>6.2} {:>14}", show_rate(rate))
}

fn better(way: &PageWay, raw: u64) -> &'static str {
    match way.is_apart(raw) {
        true => "apart",
        false => "as it is",
    }
}
