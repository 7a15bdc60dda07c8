//! The tree of an image: what its file table means as directories, names and numbers.
//!
//! A table lists paths; a directory may be missing from it, and a link may have files below it
//! (PostgreSQL's tablespaces: the set holds what the link led to). Both are directories here.
//!
//! Invariant: no link leads out of the tree. A link that would is an empty directory, because on
//! this machine it could lead to files that have nothing to do with the image.

use std::collections::HashMap;

use windlass_engine::media::{FileEntry, FileKind, FileTable, fitted};

use super::NodeNo;

/// The mode of a directory that the table does not list, or lists as a link.
const MODE_PRIVATE: u32 = 0o700;
/// The mode of the root when no directory in it gives one: the files themselves say who may read
/// them.
const MODE_ROOT: u32 = 0o755;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct SkeletonNode {
    pub(crate) parent: NodeNo,
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    /// Its position in the file table, if it is there.
    pub(crate) entry: Option<usize>,
    /// The entries of a directory, in the order of names.
    pub(crate) children: Vec<(Box<[u8]>, NodeNo)>,
}

/// All nodes of an image, the root first.
#[derive(Clone, Debug)]
pub(crate) struct Skeleton(Vec<SkeletonNode>);

impl Skeleton {
    pub(crate) fn new(files: &FileTable) -> Self {
        let mut nodes: Vec<_> = std::iter::once(directory(MODE_ROOT))
            .chain(files.0.iter().enumerate().map(of_entry))
            .collect();
        let mut numbers: HashMap<&[u8], usize> = HashMap::with_capacity(files.0.len());
        let entries = files.0.iter().enumerate();
        numbers.extend(entries.map(|(index, entry)| (entry.path.as_slice(), index + 1)));
        for (index, entry) in files.0.iter().enumerate() {
            place(&mut nodes, &mut numbers, index + 1, &entry.path);
        }
        let first = nodes[0].children.iter().find_map(|(_, child)| {
            let node = &nodes[position(*child)];
            (node.kind == FileKind::Directory).then_some(node.mode)
        });
        nodes[0].mode = first.unwrap_or(MODE_ROOT);
        for node in &mut nodes {
            node.children.sort_unstable();
            node.children.shrink_to_fit();
        }
        Self(nodes)
    }

    pub(crate) fn node(&self, number: NodeNo) -> Option<&SkeletonNode> {
        self.0.get(position(number))
    }

    /// The child of a directory by its name.
    pub(crate) fn child(&self, parent: &SkeletonNode, name: &[u8]) -> Option<NodeNo> {
        let found = parent
            .children
            .binary_search_by(|(own, _)| (**own).cmp(name));
        found.ok().map(|at| parent.children[at].1)
    }

    /// All nodes with their numbers.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeNo, &SkeletonNode)> {
        (1..).map(NodeNo).zip(&self.0)
    }
}

/// Makes the node at `index` a child of its directory. Creates the directory if the table has none.
fn place<'a>(
    nodes: &mut Vec<SkeletonNode>,
    numbers: &mut HashMap<&'a [u8], usize>,
    index: usize,
    path: &'a [u8],
) {
    let (mut index, mut path) = (index, path);
    loop {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let name = &path[slash.map_or(0, |at| at + 1)..];
        let known = match slash {
            None => Some(0),
            Some(at) => numbers.get(&path[..at]).copied(),
        };
        let parent = known.unwrap_or(nodes.len());
        if known.is_none() {
            nodes.push(directory(MODE_PRIVATE));
        }
        let holder = &mut nodes[parent];
        if holder.kind != FileKind::Directory {
            holder.kind = FileKind::Directory;
            holder.mode = MODE_PRIVATE;
        }
        holder.children.push((name.into(), number(index)));
        nodes[index].parent = number(parent);
        match (known, slash) {
            (None, Some(at)) => {
                numbers.insert(&path[..at], parent);
                (index, path) = (parent, &path[..at]);
            }
            _ => return,
        }
    }
}

fn directory(mode: u32) -> SkeletonNode {
    SkeletonNode {
        parent: NodeNo::ROOT,
        kind: FileKind::Directory,
        mode,
        entry: None,
        children: Vec::new(),
    }
}

fn of_entry((index, entry): (usize, &FileEntry)) -> SkeletonNode {
    if entry.kind == FileKind::Symlink && leads_out(&entry.path, &entry.link_target) {
        return SkeletonNode {
            entry: Some(index),
            ..directory(MODE_PRIVATE)
        };
    }
    SkeletonNode {
        kind: entry.kind,
        mode: entry.permissions(),
        entry: Some(index),
        ..directory(0)
    }
}

/// Whether a link could lead out of the tree. It may begin with `..` as often as it has directories
/// above it. A later `..` might come after another link, and then nobody knows where it leads.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    let parts = || {
        target
            .split(|byte| *byte == b'/')
            .filter(|part| part != b".")
    };
    let up = parts().take_while(|part| *part == b"..").count();
    let above = path.iter().filter(|byte| **byte == b'/').count();
    target.first() == Some(&b'/') || up > above || parts().skip(up).any(|part| part == b"..")
}

fn number(position: usize) -> NodeNo {
    NodeNo(position as u64 + 1)
}

fn position(number: NodeNo) -> usize {
    fitted(number.0.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_engine::media::{FileFlags, FileNo};

    fn table(paths: &[(&str, FileKind)]) -> FileTable {
        let entry = |(index, (path, kind)): (u32, &(&str, FileKind))| FileEntry {
            file: FileNo(index),
            kind: *kind,
            flags: FileFlags::default(),
            mode: 0o750,
            bytes: 0,
            mtime_nanos: 0,
            crc32c: 0,
            path: path.as_bytes().to_vec(),
            link_target: vec![],
        };
        FileTable((0..).zip(paths).map(entry).collect())
    }

    #[test]
    fn a_link_that_leads_out_is_an_empty_directory() {
        let shown = |path: &str, target: &str| {
            let mut table = table(&[(path, FileKind::Symlink), ("s", FileKind::Symlink)]);
            table.0[0].link_target = target.into();
            table.0[1].link_target = ".".into();
            let skeleton = Skeleton::new(&table);
            let node = find(&skeleton, path).unwrap();
            skeleton.node(node).unwrap().kind
        };
        for (path, target) in [
            ("etc", "/etc/passwd"),
            ("up", ".."),
            ("pg_tblspc/1", "../.."),
            ("pg_tblspc/1", ".././../x"),
            ("t", "s/s/../.."),
        ] {
            assert_eq!(shown(path, target), FileKind::Directory, "{path} {target}");
        }
        for (path, target) in [("a", "b"), ("pg_tblspc/1", "../x/1"), ("a/b/c", "../..")] {
            assert_eq!(shown(path, target), FileKind::Symlink, "{path} {target}");
        }
    }

    #[test]
    fn a_link_has_no_permissions_of_its_own() {
        let mut table = table(&[("link", FileKind::Symlink), ("file", FileKind::File)]);
        table.0[0].link_target = "file".into();
        let skeleton = Skeleton::new(&table);
        let mode = |path| skeleton.node(find(&skeleton, path)?).map(|it| it.mode);
        assert_eq!((mode("link"), mode("file")), (Some(0o777), Some(0o750)));
    }

    fn find(skeleton: &Skeleton, path: &str) -> Option<NodeNo> {
        let mut at = NodeNo::ROOT;
        for name in path.split('/') {
            at = skeleton.child(skeleton.node(at)?, name.as_bytes())?;
        }
        Some(at)
    }

    #[test]
    fn a_link_with_files_below_it_is_a_directory_and_others_stay_links() {
        use FileKind::*;
        let skeleton = Skeleton::new(&table(&[
            ("pg_tblspc", Directory),
            ("pg_tblspc/16400", Symlink),
            ("pg_tblspc/16400/PG_15", Directory),
            ("pg_tblspc/16400/PG_15/1", File),
            ("elsewhere", Symlink),
        ]));
        let space = find(&skeleton, "pg_tblspc/16400").unwrap();
        let node = skeleton.node(space).unwrap();
        assert_eq!((node.kind, node.mode), (Directory, 0o700));
        assert!(find(&skeleton, "pg_tblspc/16400/PG_15/1").is_some());
        let link = find(&skeleton, "elsewhere").unwrap();
        assert_eq!(skeleton.node(link).unwrap().kind, Symlink);
        assert_eq!(skeleton.node(NodeNo::ROOT).unwrap().mode, 0o750);
    }

    #[test]
    fn directories_that_are_not_listed_are_there_and_numbers_follow_the_table() {
        use FileKind::*;
        let skeleton = Skeleton::new(&table(&[("a/b/c", File), ("a/d", File), ("e", File)]));
        assert_eq!(find(&skeleton, "a/b/c"), Some(NodeNo(2)));
        assert_eq!(find(&skeleton, "a/d"), Some(NodeNo(3)));
        assert_eq!(find(&skeleton, "e"), Some(NodeNo(4)));
        let b = find(&skeleton, "a/b").unwrap();
        let a = find(&skeleton, "a").unwrap();
        assert_eq!(skeleton.node(b).unwrap().parent, a);
        assert_eq!(skeleton.node(a).unwrap().parent, NodeNo::ROOT);
        assert_eq!(skeleton.node(NodeNo::ROOT).unwrap().mode, 0o700);
        assert_eq!(skeleton.nodes().count(), 6);
    }
}
