"""Annotated faces: reading and writing them, checks, changes, and faces that are drawn here."""

from __future__ import annotations

from site_agent.datasets.check import Finding, check_dataset, check_datasets
from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.datasets.conversion import (
    ANNOTATION_FORMATS,
    AnnotationFormat,
    ReadingOptions,
    Reboxed,
    choose_parts,
    copy_images,
    join_datasets,
    read_faces,
    rebox_dataset,
    recognise_annotations,
    renumber_parts,
)
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.landmark_schemes import PART_GROUPS, expand_parts
from site_agent.datasets.part_order import find_model_parts, group_of_shape
from site_agent.datasets.pts_files import read_pts, read_pts_folder
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    image_marks,
    numbered_parts,
    part_names,
    parts_array,
    require_images,
)
from site_agent.datasets.sheets import sheet_paths, write_contact_sheets
from site_agent.datasets.split import by_folder, by_pattern, by_table, site_shares, split_dataset
from site_agent.datasets.statistics import DatasetStatistics, Distribution, dataset_statistics

__all__ = [
    "ANNOTATION_FORMATS",
    "PART_GROUPS",
    "AnnotatedImage",
    "AnnotationFormat",
    "DatasetStatistics",
    "Distribution",
    "FaceBox",
    "FaceDataset",
    "Finding",
    "ReadingOptions",
    "Reboxed",
    "by_folder",
    "by_pattern",
    "by_table",
    "check_dataset",
    "check_datasets",
    "choose_parts",
    "copy_images",
    "dataset_digest",
    "dataset_statistics",
    "expand_parts",
    "find_model_parts",
    "group_of_shape",
    "image_marks",
    "join_datasets",
    "numbered_parts",
    "part_names",
    "parts_array",
    "read_coco_keypoints",
    "read_faces",
    "read_imglab_xml",
    "read_pts",
    "read_pts_folder",
    "rebox_dataset",
    "recognise_annotations",
    "renumber_parts",
    "require_images",
    "sheet_paths",
    "site_shares",
    "split_dataset",
    "write_contact_sheets",
    "write_imglab_xml",
]
