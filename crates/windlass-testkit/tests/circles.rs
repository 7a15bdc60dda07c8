//! Layers as a test: the files of a crate use each other in one direction.
//!
//! A file uses another if it names something that the other defines. What a file passes on with
//! `pub use` counts for the file that defines it, and tests count for nothing. Files that use each
//! other in a circle can only be understood together, so a circle has at most three.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

const CIRCLE_FILES_MAX: usize = 3;

/// Names from the root of the crate to a module or to something in one.
type Names = Vec<String>;

/// One module that has a file.
#[derive(Default)]
struct Module {
    file: String,
    /// Where the names that it imports come from. `true` if it passes the name on.
    imports: BTreeMap<String, (Names, bool)>,
    /// What it passes on as a whole, with `*`.
    globs: Vec<(Names, bool)>,
    /// Each path in its code.
    paths: BTreeSet<Names>,
}

type Crate = BTreeMap<Names, Module>;

fn read_crate(source: &Path) -> Crate {
    let root = ["lib.rs", "main.rs"].map(|name| source.join(name));
    let root = root.iter().find(|path| path.exists()).unwrap();
    let mut modules = Crate::new();
    read_module(root, source, Vec::new(), &mut modules);
    modules
}

/// Reads the file of a module, and those of its children, which are in `folder`.
fn read_module(file: &Path, folder: &Path, names: Names, modules: &mut Crate) {
    let syntax = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
    let mut module = Module {
        file: file.to_string_lossy().into_owned(),
        ..Module::default()
    };
    let mut reader = Reader {
        module: &mut module,
        children: Vec::new(),
    };
    reader.visit_file(&syntax);
    for child in std::mem::take(&mut reader.children) {
        let flat = folder.join(format!("{child}.rs"));
        let nested = folder.join(&child).join("mod.rs");
        let path = if flat.exists() { flat } else { nested };
        let mut names = names.clone();
        names.push(child.clone());
        read_module(&path, &folder.join(child), names, modules);
    }
    modules.insert(names, module);
}

struct Reader<'a> {
    module: &'a mut Module,
    children: Vec<String>,
}

impl Reader<'_> {
    fn read_use(&mut self, tree: &syn::UseTree, before: &Names, public: bool) {
        let with = |ident: &syn::Ident| {
            let mut names = before.clone();
            names.push(ident.to_string());
            names
        };
        match tree {
            syn::UseTree::Path(path) => self.read_use(&path.tree, &with(&path.ident), public),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.read_use(tree, before, public);
                }
            }
            syn::UseTree::Glob(_) => self.module.globs.push((before.clone(), public)),
            syn::UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().unwrap().clone();
                self.module.imports.insert(last, (before.clone(), public));
            }
            syn::UseTree::Name(name) => {
                let import = (with(&name.ident), public);
                self.module.imports.insert(name.ident.to_string(), import);
            }
            syn::UseTree::Rename(name) => {
                let import = (with(&name.ident), public);
                self.module.imports.insert(name.rename.to_string(), import);
            }
        }
    }

    /// Macros' arguments are not parsed, but a path in them looks like any other.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 || path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && colons < 2 => colons += 1,
                other => {
                    self.module.paths.insert(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.read_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.module.paths.insert(path);
    }
}

fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg") && list.tokens.to_string().starts_with("test")
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if for_tests(&item.attrs) {
            return;
        }
        match item.content {
            None => self.children.push(item.ident.to_string()),
            Some(_) => syn::visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if for_tests(&item.attrs) {
            return;
        }
        let public = matches!(item.vis, syn::Visibility::Public(_))
            || matches!(item.vis, syn::Visibility::Restricted(_));
        self.read_use(&item.tree, &Names::new(), public);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !for_tests(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    /// `pub(super)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter();
        let names = names.map(|segment| segment.ident.to_string()).collect();
        self.module.paths.insert(names);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.read_tokens(call.tokens.clone());
        syn::visit::visit_macro(self, call);
    }
}

/// The names from the root, for names as the module `of` sees them. `None` for other crates.
fn from_root(of: &Names, names: &[String], modules: &Crate) -> Option<Names> {
    let mut base = of.clone();
    match names.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            base.pop()?;
            if names.get(1).is_some_and(|name| name == "super") {
                return from_root(&base, &names[1..], modules);
            }
        }
        first => {
            let child = [of.as_slice(), &[first.to_owned()]].concat();
            // A name alone is a variable, unless it was imported.
            if names.len() > 1 && modules.contains_key(&child) {
                return Some([of.as_slice(), names].concat());
            }
            let (import, _) = modules.get(of)?.imports.get(first)?;
            if import.first()? == first {
                return None;
            }
            return from_root(of, &[import.as_slice(), &names[1..]].concat(), modules);
        }
    }
    base.extend_from_slice(&names[1..]);
    Some(base)
}

/// The module that defines what these names lead to.
fn definer(names: &Names, modules: &Crate, depth: usize) -> Option<Names> {
    let mut module = Names::new();
    for (at, name) in names.iter().enumerate() {
        let mut child = module.clone();
        child.push(name.clone());
        if modules.contains_key(&child) {
            module = child;
            continue;
        }
        let passed = modules[&module].imports.get(name).map(|(from, _)| from);
        let Some(from) = passed.filter(|_| depth < 9) else {
            return Some(through_glob(&module, modules).unwrap_or(module));
        };
        let rest = [from.as_slice(), &names[at + 1..]].concat();
        return definer(&from_root(&module, &rest, modules)?, modules, depth + 1);
    }
    Some(module)
}

/// A name that a module passes on with `*` is defined where `*` leads.
fn through_glob(module: &Names, modules: &Crate) -> Option<Names> {
    let (from, public) = modules[module].globs.first()?;
    from_root(module, from, modules).filter(|_| *public)
}

/// The modules that each module uses.
fn uses(modules: &Crate) -> BTreeMap<Names, BTreeSet<Names>> {
    let mut uses = BTreeMap::new();
    for (names, module) in modules {
        let private = module.imports.values().filter(|(_, public)| !public);
        let private = private.map(|(import, _)| import);
        let globs = module.globs.iter().map(|(from, _)| from);
        let all = private.chain(globs).chain(&module.paths);
        let used = all.filter_map(|path| from_root(names, path, modules));
        let used = used.filter_map(|path| definer(&path, modules, 0));
        let used = used.filter(|used| used != names);
        uses.insert(names.clone(), used.collect::<BTreeSet<_>>());
    }
    uses
}

/// Everything that can be reached from a module.
fn reach<'a>(from: &'a Names, uses: &'a BTreeMap<Names, BTreeSet<Names>>) -> BTreeSet<&'a Names> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(names) = waiting.pop() {
        for next in &uses[names] {
            if reached.insert(next) {
                waiting.push(next);
            }
        }
    }
    reached
}

/// The circles that are too large, each with the uses that make it.
fn circles(modules: &Crate) -> Vec<String> {
    let uses = uses(modules);
    let reached: BTreeMap<_, _> = uses
        .keys()
        .map(|names| (names, reach(names, &uses)))
        .collect();
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for names in uses.keys() {
        let circle = reached[names].iter().copied();
        let circle: BTreeSet<_> = circle
            .filter(|other| reached[other].contains(names))
            .collect();
        if circle.len() <= CIRCLE_FILES_MAX || !told.insert(circle.clone()) {
            continue;
        }
        let mut text = format!("{} files use each other in a circle:", circle.len());
        for one in &circle {
            let inside = uses[*one].iter().filter(|used| circle.contains(used));
            let inside: Vec<_> = inside.map(|used| used.join("::")).collect();
            text += &format!("\n    {} uses {}", modules[*one].file, inside.join(", "));
        }
        found.push(text);
    }
    found
}

#[test]
fn the_files_of_a_crate_form_no_large_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found: Vec<_> = crates
        .flat_map(|path| circles(&read_crate(&path.join("src"))))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
